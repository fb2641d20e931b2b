"use strict";
// The rooms of autoscaler and cost. Uses the helpers of page.js.

const MAX_CLASSES = 50;
const MAX_OPTIONS = 30;
const MAX_HISTORY = 50;
const MAX_ITERATIONS = 60; // on the timeline
const MAX_NAMES = 3;
const MAX_REASONS = 12;
const SOFT = new Set(["likely to go", "needed again"]); // reasons of marks that nothing comes of yet

const number = value => value === null ? "∞" : trimmed(value, 3);
const listed = (names, count = names.length) => names.slice(0, MAX_NAMES).join(", ") +
  (count > MAX_NAMES ? ` and ${count - MAX_NAMES} more` : "");
const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);

const UNTOLD = new Set(["pods", "ephemeral-storage"]); // every machine has some
const isLent = name => /^kubernetes\.io\/(mid|batch)-/.test(name);
const requested = amounts => Object.entries(amounts).filter(([name]) => !UNTOLD.has(name))
  .map(([name, amount]) => name === "cpu" ? `${cpu(amount)} cpu` : name === "memory" ? memory(amount)
    : isLent(name) ? `${name.endsWith("cpu") ? cpu(amount) : memory(amount)} ${name.slice(name.indexOf("/") + 1)}`
    : `${amount} ${name}`).join(", ");
const machine = amounts => requested(Object.fromEntries(Object.entries(amounts).filter(([name]) => !isLent(name))));

// A column is [title, class name, key of the row or row => text or element].
const drawTable = (id, columns, rows, mark = () => "") => {
  const head = element("thead"), titles = element("tr"), body = element("tbody");
  for (const [title, kind] of columns) {
    const cell = element("th", kind.includes("number") ? "number" : "", title);
    cell.scope = "col";
    titles.append(cell);
  }
  head.append(titles);
  for (const row of rows) {
    const line = element("tr", mark(row));
    for (const [, kind, shownAs] of columns) {
      const cell = element("td", kind);
      cell.append(typeof shownAs === "string" ? String(row[shownAs]) : shownAs(row));
      line.append(cell);
    }
    body.append(line);
  }
  const table = byId(id);
  table.hidden = !rows.length;
  renew(table, head, body);
};

const linkTo = (path, text, title = text) => {
  const link = element("a", "", text);
  link.title = title;
  link.href = path;
  return link;
};
const named = ({ node }) => linkTo(nodePath(node), shortName(node), node);

const tagged = (text, ...tags) => {
  const made = element("span");
  made.append(text);
  made.append(...tags.filter(Boolean).map(tag => element("span", "tag", tag)));
  return made;
};

const drawCosts = cost => {
  renew(byId("costs"), ...costTiles(cost).map(([label, value, meaning]) => {
    const tile = element("div", "tile");
    tile.append(element("h2", "", label), element("strong", "", value), element("span", "", meaning));
    return tile;
  }));
  byId("estimated").hidden = !cost.estimated && !cost.estimated_groups.length;
};

const costs = makeCosts();
let costPlot = null;

const drawSpending = async (cost, time, hasMissed) => {
  if (hasMissed) {
    Object.assign(costs, makeCosts());
    await remembered("costs", past => rememberCosts(costs, past));
  }
  if (!costPlot) {
    costPlot = makePlot("Cost", "$ an hour", COSTS);
    byId("spending").append(costPlot.root, legend(COSTS));
  }
  rememberCost(costs, time, cost);
  costPlot.draw({ times: [...costs.times], lines: Object.keys(COSTS).map(kind => [kind, [...costs.values[kind]]]) });
};

const drawDone = (iterations, latest) => {
  const events = eventsOf(iterations, { did, happened, isSoft: act => SOFT.has(act.reason) });
  byId("timeline").classList.toggle("none", !events.length);
  const last = Math.max(latest ? Date.parse(latest.time) : 0, events.length ? events.at(-1).time : 0);
  if (events.length) drawTimeline(byId("timeline"), events, byId("autoscaler").clientWidth || 400, last);
  renew(byId("history"), ...(events.length ? events.slice(-MAX_HISTORY).reverse().map(({ time, lane, text }) => {
    const line = element("li"), when = element("time", "", new Date(time).toLocaleString());
    line.append(when, element("span", "", LANES[lane]), element("span", lane === "failed" ? "bad-text" : "", text));
    return line;
  }) : [element("li", "quiet", "Nothing yet.")]));
};

const condition = group => {
  if (group.backoff) return element("span", "bad-text", `left alone until ${moment(group.backoff.until)}: ${group.backoff.reason}`);
  if (!group.healthy) return element("span", "warn-text", "not ready for scale-up");
  if (group.errors.length) return element("span", "warn-text", group.errors.map(each => `${each.instances} x ${each.code}`).join(", "));
  if (group.upcoming) {
    return `${counted(group.upcoming, "node")} on the way` + (group.request ? `, until ${moment(group.request.deadline)} at the latest` : "");
  }
  return "healthy";
};

const drawGroups = ({ groups, refused }) => drawTable("groups", [
  ["Group", "", row => tagged(row.id, row.autoprovisioned && "created by the autoscaler")],
  ["Mode", "", "mode"],
  ["Target", "number", "target_size"],
  ["Min", "number", "min_size"],
  ["Max", "number", "max_size"],
  ["Ready", "number", row => String(row.nodes.ready)],
  ["Cost/h", "number", row => row.refused ? "" : money(row.cost_per_hour, [row.id])],
  ["State", "reasons", row => row.refused ? element("span", "bad-text", row.refused) : condition(row)],
], [...groups, ...refused.map(each => ({
  id: each.group, mode: "", target_size: "", min_size: "", max_size: "", nodes: { ready: "" }, refused: each.reason,
}))]);

const whyNone = (row, plan) => {
  const unplaced = plan.unplaced.find(each => each.position === row.position);
  if (!unplaced) return "";
  const reasons = unplaced.reasons.map(each => `${listed(each.groups)}: ${each.reasons.join(", ")}`);
  return [...(unplaced.awaiting ? ["A group could take them in a later iteration"] : []), ...reasons].join("; ");
};

const drawPending = plan => {
  const waiting = plan.pending.filter(row => row.unplaced || row.triggered || row.on_nodes || row.reclaimed);
  drawTable("pending", [
    ["Pods", "wide", row => tagged(listed(row.pods, row.count), row.count > 1 && `${row.count} alike`)],
    ["Each requests", "", row => requested(row.requests)],
    ["Fit on nodes", "number", "on_nodes"],
    ["Reclaimed", "number", "reclaimed"],
    ["New node", "number", "triggered"],
    ["None", "number", "unplaced"],
    ["Why none", "reasons", row => whyNone(row, plan)],
  ], waiting.slice(0, MAX_CLASSES));
  const total = sum(plan.pending, "count");
  const skippedPods = plan.skipped_pods.map(row => `${row.count} (${row.reason})`);
  byId("pending-title").textContent = `Pending pods: ${total || "none"}` + (skippedPods.length ? `, skipped: ${skippedPods.join(", ")}` : "");
};

const drawOptions = (plan, isLatest) => {
  const chain = plan ? plan.steps.map(step => step.expander) : [];
  const wins = !chain.length || chain[0] === "price" ? "the lowest rank wins, unless several groups at once are cheaper"
    : `chosen by ${chain.join(", then ")}`;
  byId("options-title").textContent = !plan ? "Options: none yet"
    : `Options${isLatest ? "" : ` of the last decision, ${moment(plan.time)}`}: ${wins}`;
  const term = key => row => row.rank ? number(row.rank[key]) : "";
  const price = key => row => row.rank ? trimmed(row.rank[key], 4) : "";
  const options = plan ? plan.options : [];
  const several = plan && plan.comparison && plan.comparison.uses_several ? plan.comparison.several.nodes : null;
  const taken = row => several ? row.group in several : row.chosen;
  drawTable("options", [
    ["Group", "wide", row => tagged(row.group, !row.exists && "would be created", row.chosen && "best", taken(row) && several && `${counted(several[row.group], "node")} of the mix`,
      row.dropped_by && row.dropped_by !== "price" && `dropped by ${row.dropped_by}`)],
    ["Machine", "", row => tagged(row.machine_type || "unknown", machine(row.machine))],
    ["Nodes", "number", "nodes"],
    ["Pods", "number", "pods"],
    ["C nodes $/h", "number", row => row.rank ? about([row.group]) + price("nodes_price")(row) : ""],
    ["T pods $/h", "number", price("pods_price")],
    ["X", "number", price("stabilization_price")],
    ["(C+X)/(T+X)", "number", term("stabilized_ratio")],
    ["Unfitness", "number", term("unfitness")],
    ["Suppressed", "number", term("suppressed_unfitness")],
    ["New", "number", term("new_group_factor")],
    ["Rank", "number", row => row.rank ? number(row.rank.rank) : row.problem],
  ], options.slice(0, MAX_OPTIONS), row => taken(row) ? "chosen" : "");
  byId("rank-terms").hidden = !options.some(row => row.rank);
  byId("preferred").textContent = plan && plan.preferred_cpu_milli !== null ? `, ${cpu(plan.preferred_cpu_milli)} cpu` : "";
  const compared = plan && plan.comparison;
  const placed = ({ nodes, cost_per_hour }) =>
    `${money(cost_per_hour, Object.keys(nodes))}/h on ${Object.entries(nodes).map(([group, count]) => `${count} x ${group}`).join(" + ")}`;
  byId("comparison").textContent = !compared || compared.single.cost_per_hour === null ? "" : [
    `One group: ${placed(compared.single)}${compared.uses_several ? "" : ", taken"}`,
    ...(compared.several ? [`several: ${placed(compared.several)}${compared.uses_several ? ", taken" : ""}`] : []),
    ...(compared.minimum === null ? [] : [`perfect fit, the theoretical minimum: ${dollars(compared.minimum)}/h`]),
  ].join("; ") + ".";
};

const share = value => value === null ? "" : `${trimmed(100 * value, 1)} %`;
const percent = value => value === null ? "unknown" : `${trimmed(value, 1)} %`;

const drawLeaving = rows => drawTable("leaving", [
  ["On its way out", "wide", named],
  ["Group", "", "group"],
  ["Why", "", "kind"],
  ["Stage", "", row => row.error ? element("span", "bad-text", row.stage) : row.stage],
  ["Since", "", row => moment(row.since)],
  ["Waits for", "reasons", row => row.error || listed(row.waits_for)],
], rows);

const couldGo = row => ["goes", "unneeded"].includes(row.standing);

const drawStaying = of => {
  const none = { goes: 0, unneeded: 0, cooldown: "", savable_per_hour: null, stay: [], nodes: [] };
  const found = of || none;
  const count = found.goes + found.unneeded;
  const rows = found.nodes.filter(couldGo);
  const first = rows.length < count ? `; the first ${rows.length}` : "";
  const saved = found.savable_per_hour ? `, ${money(found.savable_per_hour, rows.map(row => row.group))}/h` : "";
  byId("staying-title").textContent = `Nodes that could be deleted: ${count || "none"}${count ? `, ${found.goes || "none"} of them now${saved}${first}` : ""}`;
  byId("cooldown").textContent = found.cooldown && `Nothing is deleted for now: ${found.cooldown}.`;
  drawTable("could-go", [
    ["Node", "wide", row => tagged(named(row), row.standing === "goes" && "deleted now")],
    ["Group", "", "group"],
    ["Requested", "number", row => share(row.utilization)],
    ["Pods", "number", "pods"],
    ["Cost/h", "number", row => row.cost_per_hour === null ? "" : money(row.cost_per_hour, [row.group])],
    ["Unneeded since", "", row => row.unneeded_since ? moment(row.unneeded_since) : ""],
    ["Why", "reasons", row => because(row)],
  ], rows, row => row.standing === "goes" ? "chosen" : "");
  drawTable("staying", [
    ["Kept because", "", row => row.reason || row.standing],
    ["Nodes", "number", "count"],
    ["", "wide", row => listed(row.nodes, row.count)],
    ["For example", "reasons", "detail"],
  ], found.stay.filter(row => row.standing !== "unneeded"));
};

const toBeDone = row => [
  ...[["tainted, not ready", row.unhealthy], ["tainted", row.taint], ["untainted", row.untaint], ["drained", row.drained],
    ["deleted", row.deleted]].filter(([, nodes]) => nodes.length).map(([what, nodes]) => `${listed(nodes)} ${row.dry ? "would be " : ""}${what}`),
  ...(row.increase ? [`${counted(row.increase, "node")} more ${row.dry ? "would be " : ""}requested`] : []),
  ...row.refusals,
].join("; ");

const drawScans = rows => {
  byId("scans-title").hidden = !rows.length;
  drawTable("scans", [
    ["Group", "", row => tagged(row.group, row.dry && "dry", row.locked && "waits for nodes", row.breaker_open && "requests no more")],
    ["Cpu", "number", row => row.from_zero ? "no nodes" : percent(row.cpu_percent)],
    ["Memory", "number", row => row.from_zero ? "no nodes" : percent(row.memory_percent)],
    ["Down below", "number", row => `${row.thresholds.lower} %, ${row.thresholds.upper} %`],
    ["Up above", "number", row => `${row.thresholds.scale_up} %`],
    ["Untainted", "number", "untainted"],
    ["Tainted", "number", row => String(row.tainted + row.force_tainted)],
    ["Cordoned", "number", "cordoned"],
    ["Delta", "number", row => row.delta > 0 ? `+${row.delta}` : String(row.delta)],
    ["Rules", "reasons", row => row.error ? element("span", "bad-text", row.error)
      : row.steps.map(step => step.delta ? `${step.rule} (${step.delta > 0 ? "+" : ""}${step.delta})` : step.rule).join(", ")],
    ["Done", "reasons", row => toBeDone(row)],
  ], rows);
};

const happened = ({ what, group, nodes, seconds, code, message }) => {
  const said = {
    "registered": `${group}: ${counted(nodes, "node")} registered, all that were requested, after ${Math.round(seconds)} s`,
    "timed out": `${group}: ${counted(nodes, "node")} did not register in ${Math.round(seconds)} s`,
    "taken back": `${group}: no node is on its way any more`,
    "creation failed": `${group}: the cloud could not launch ${counted(nodes, "node")}: ${code}: ${message}`,
    "backoff ended": `${group} may be scaled up again`,
    "deleted by others": `${group}: ${message}`,
    "delayed": `${group}: ${message}`,
  };
  return said[what] || `${group}: ${what}`;
};

const did = act => {
  const size = act.nodes ? ` from ${act.from_size} to ${act.to_size} nodes` : "";
  const named = act.node_names.length ? ` (${listed(act.node_names)})` : "";
  const cost = !act.cost_per_hour ? "" : act.cost_per_hour < 0 ? `, which saves ${money(-act.cost_per_hour, [act.group])}/h` : ` for ${money(act.cost_per_hour, [act.group])}/h`;
  const end = act.error ? `, which failed: ${act.error}` : act.done ? "" : act.mode === "enforce" ? " (not done)" : ` (${act.mode} only)`;
  return `${act.what} ${act.group}${size}${named}${cost}${act.reason && `: ${act.reason}`}${end}`;
};

// Each line a text, or several parts; hidden where there are none.
const drawList = (id, lines, most = MAX_REASONS) => {
  const shownLines = lines.slice(0, most);
  if (lines.length > most) shownLines.push(`and ${lines.length - most} more`);
  renew(byId(id), ...shownLines.map(parts => {
    const line = element("li");
    line.append(...[parts].flat());
    return line;
  }));
  byId(id).parentElement.hidden = !lines.length;
};

const drawRefused = plan => {
  drawList("not-considered", [
    ...plan.skipped.map(row => `${listed(row.groups)}: ${row.reason}`),
    ...plan.caps.map(row => `${row.group} gets ${row.allowed} of ${counted(row.wanted, "node")}: ${row.limit}`),
    ...plan.invalid_objects.map(row => `${row.object}: ${row.problem}`),
  ]);
  drawList("disagreements", plan.disagreements.map(row =>
    `${listed(row.pods)}: the scheduler refuses ${row.groups.length ? `new nodes of ${listed(row.groups)}` : "ready nodes"}: ${row.message}`));
};

const stateOf = latest => {
  if (!latest) return "No iteration is over yet.";
  if (latest.blocked_reason) return `Nothing is decided: ${latest.blocked_reason}.`;
  const acts = latest.decisions.filter(act => !SOFT.has(act.reason)).map(did);
  return `Decided at ${moment(latest.time)}${latest.dry_run ? " (dry run)" : ""}: ${acts.length ? acts.join("; ") : `nothing to do (${latest.outcome})`}.`;
};

// True if this manager has an autoscaler; else the room of this name says so.
const isShown = room => {
  byId(room).hidden = !hasAutoscaler();
  byId(`${room}-state`).textContent = hasAutoscaler() ? "" : "This manager runs no autoscaler.";
  return hasAutoscaler();
};

const loadAutoscaler = async () => {
  await loadGroups();
  if (!isShown("autoscaler")) return;
  const { latest, iterations, earlier } = await answered(`api/v1/decisions?brief=true&limit=${MAX_ITERATIONS}`);
  byId("autoscaler-state").textContent = stateOf(latest);
  drawDone([...iterations, ...earlier], latest);
  drawPending(latest || { pending: [], unplaced: [], skipped_pods: [] });
  drawReserved(latest);
  drawRefused(latest || { skipped: [], caps: [], disagreements: [], invalid_objects: [] });
  drawGroups(known.groups);
  const isLatest = latest !== null && latest.options.length > 0;
  drawOptions(isLatest ? latest : iterations.find(iteration => iteration.options.length), isLatest);
  drawLeaving(latest ? latest.leaving : []);
  drawDisruption(latest && latest.scale_down);
  drawStaying(latest && latest.scale_down);
  drawScans(latest ? latest.scans : []);
};

// A team is a namespace, or a value of the label whose key follows "#/cost?".
const LABEL_KEY = /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$/;
const rowsOfNamespaces = ({ namespaces }) => namespaces.map(({ namespace, ...costs }) =>
  ({ team: linkTo(`#/workloads?${encodeURIComponent(`${namespace}/`)}`, namespace), ...costs }));
const rowsOfLabel = ({ key, values }) => values.map(({ value, ...costs }) =>
  ({ team: value === null ? element("span", "quiet", `without the label ${key}`) : element("span", "", value || '""'), ...costs }));

const drawTeams = (answer, key, { estimated }) => {
  const monthly = value => value === null ? "unknown" : `${estimated ? "~" : ""}${dollars(value * HOURS_A_MONTH)}`;
  const rows = key ? rowsOfLabel(answer) : rowsOfNamespaces(answer), keys = [...new Set([...answer.label_keys, ...(key ? [key] : [])])];
  renew(byId("team"), ...["", ...keys].map(each => {
    const option = element("option", "", each ? `label ${each}` : "namespace");
    option.value = each;
    return option;
  }));
  byId("team").value = key;
  drawTable("teams", [
    [key ? `Label ${key}` : "Namespace", "wide", row => row.team],
    ["Requested, a month", "number", row => monthly(row.requested)],
    ["Used as Mid and Batch, not bought, a month", "number", row => monthly(row.used)],
  ], rows);
  byId("teams-said").textContent = `What pods request, at the prices of their nodes. ${monthly(answer.idle)} a month is requested by no pod.` +
    (rows.length < answer.total ? ` These are ${rows.length} of ${answer.total} ${key ? "values" : "namespaces"}.` : "");
};

byId("team").addEventListener("change", ({ target }) => { location.hash = target.value ? `#/cost?${encodeURIComponent(target.value)}` : "#/cost"; });

const loadCost = async hasMissed => {
  await loadGroups();
  if (!isShown("cost")) return;
  const { cost_per_hour: cost, time } = known.groups;
  drawCosts(cost);
  await drawSpending(cost, time ? Date.parse(time) : Date.now(), hasMissed);
  const key = LABEL_KEY.test(place.filter) ? place.filter : "";
  drawTeams(await answered(`api/v1/costs/${key ? `labels?key=${encodeURIComponent(key)}&` : "namespaces?"}limit=${MAX_CLASSES}`), key, cost);
};
