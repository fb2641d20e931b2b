"""The examples in the help of each command. Those of the agent, the manager and the plan are with their settings."""

from shared import examples

UNWRAPPED = "\b\n"  # begins a paragraph whose lines the parser does not join


def _epilog(*pairs: tuple[str, str]) -> str:
    return f"{UNWRAPPED}{examples.text(*pairs)}"


HEADROOM = _epilog(
    ("Try Headroom on this machine", "headroom up"),
    ("Check a cluster before the installation", "headroom check"),
    ("Show what a cluster could save", "headroom savings"),
)
UP = _epilog(
    ("Run this machine and five simulated nodes, until Ctrl-C", "headroom up"),
    ("End after two minutes, and print the last state", "headroom up --for 120s -o json"),
    ("Keep the state in a directory, and continue from it the next time", "headroom up --nodes 20 --keep ./cluster"),
)
BACKTEST = _epilog(
    (
        "Replay a file of recorded usage",
        "headroom backtest usage_cpu_millicores.csv.gz --limits limits.csv",
    ),
    (
        "Compare two predictors over 30 days of a Prometheus",
        "headroom backtest http://127.0.0.1:9090 --model peak-mix,percentile",
    ),
    (
        "Show how an agent's own predictors did",
        "headroom backtest --from-agent http://127.0.0.1:9316",
    ),
)
RECOMMEND = _epilog(
    ("Recommend requests for the workloads of one namespace", "headroom recommend -n shop"),
    (
        "Print a patch for one Deployment",
        "headroom recommend --workload shop/Deployment/web -o patch",
    ),
    (
        "Read a dump of the cluster and a Prometheus",
        "headroom recommend -f cluster.json --prometheus http://127.0.0.1:9090",
    ),
)
SAVINGS = _epilog(
    ("Show what the current cluster could save", "headroom savings"),
    (
        "Read a dump of the cluster and a Prometheus",
        "headroom savings -f cluster.json --prometheus http://127.0.0.1:9090",
    ),
    ("Fail in CI if more than 500 a month could be saved", "headroom savings --fail-above 500"),
)
PRICES_SHOW = _epilog(("List the known prices", "headroom prices show"))
PRICES_REFRESH = _epilog(
    ("Fetch the prices of two regions of AWS", "headroom prices refresh aws --region us-east-1 --region eu-west-1"),
    ("Fetch the prices of a region of Azure", "headroom prices refresh azure --region westeurope"),
)
PRICES = _epilog(
    ("List the known prices", "headroom prices show"),
    ("Fetch the prices of a region", "headroom prices refresh aws --region us-east-1"),
)
EXPLAIN_NODE = _epilog(
    ("Explain what a node offers, from the live cluster", "headroom explain node node-1"),
    (
        "Show the running manager's own answer",
        "headroom explain node node-1 --manager http://127.0.0.1:8080",
    ),
    ("Explain it from a file, without a cluster", "headroom explain node node-1 -f cluster.yaml -o json"),
)
EXPLAIN = _epilog(("Explain what a node offers", "headroom explain node node-1"))
TOP = _epilog(
    ("Show a live table; ? lists its keys", "headroom top"),
    ("Print the nodes that use most", "headroom top --sort used | head"),
    ("Print the names of nodes whose report is stale", "headroom top -o name --filter stale"),
)
COST = _epilog(
    ("Show what each namespace costs", "headroom cost"),
    ("Show what each team costs, by a label of its pods", "headroom cost --label team"),
    ("Only the most expensive one, for a program", "headroom cost --label app.kubernetes.io/name --top 1 -o json"),
)
PAGE = _epilog(
    ("Open the page of the current cluster", "headroom page"),
    ("Only print the address, for another cluster", "headroom page --no-browser --context production"),
)
CHECK = _epilog(
    ("Check the current cluster", "headroom check"),
    ("Check a release in another namespace, for a program", "headroom check -n lending -o json"),
)
SUPPORT_BUNDLE = _epilog(
    ("Write headroom-support.tar.gz", "headroom support-bundle"),
    ("Write another file", "headroom support-bundle --to /tmp/production.tar.gz --context production"),
)
CLEANUP = _epilog(
    ("Print what would be removed", "headroom cleanup --dry-run"),
    ("Evict the pods that use Mid and Batch first", "headroom cleanup --pods drain"),
)
VERSION = _epilog(
    ("Show the versions of this command and of the cluster's components", "headroom version"),
    ("Do not read the cluster", "headroom version --client"),
)
FORGET_NODE = _epilog(
    ("Print the requests", "headroom forget node node-1 node-2 --dry-run"),
    ("Delete what was learned of two nodes", "headroom forget node node-1 node-2"),
)
FORGET_WORKLOAD = _epilog(
    ("Delete what was learned of a Deployment", "headroom forget workload shop/Deployment/web"),
    ("Only on one node", "headroom forget workload shop/Deployment/web --nodes node-1"),
)
FORGET = _epilog(
    ("Delete what was learned of a node", "headroom forget node node-1"),
    ("Delete what was learned of a workload", "headroom forget workload shop/Deployment/web"),
)
