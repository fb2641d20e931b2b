"use strict";
// The autoscaler's part of the page, hidden where the manager has none. Uses the helpers of page.js.

const MAX_CLASSES = 50;
const MAX_OPTIONS = 30;
const MAX_HISTORY = 12;
const MAX_ROUNDS = 60; // on the timeline
const MAX_NAMES = 3;
const MAX_REASONS = 12;
const SOFT = new Set(["likely to go", "needed again"]); // reasons of marks that nothing comes of yet

const dollars = value => value === null ? "unknown"
  : `$${value.toFixed(Math.abs(value) < 1 ? 4 : 2).replace(/(\.\d\d+?)0+$/, "$1")}`;
const number = value => value === null ? "∞" : trimmed(value, 3);
const moment = text => new Date(text).toLocaleTimeString();
const listed = (names, count = names.length) => names.slice(0, MAX_NAMES).join(", ") +
  (count > MAX_NAMES ? ` and ${count - MAX_NAMES} more` : "");
const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);

const UNTOLD = new Set(["pods", "ephemeral-storage"]); // every machine has some
const isLent = name => /^kubernetes\.io\/(mid|batch)-/.test(name);
const requested = amounts => Object.entries(amounts).filter(([name]) => !UNTOLD.has(name))
  .map(([name, amount]) => name === "cpu" ? `${cpu(amount)} cpu` : name === "memory" ? memory(amount)
    : isLent(name) ? `${name.endsWith("cpu") ? cpu(amount) : memory(amount)} ${name.slice(name.indexOf("/") + 1)}`
    : `${amount} ${name}`).join(", ");
const machine = amounts => requested(Object.fromEntries(Object.entries(amounts).filter(([name]) => !isLent(name))));

// A column is [title, class name, row => text or element].
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
      cell.append(shownAs(row));
      line.append(cell);
    }
    body.append(line);
  }
  const table = byId(id);
  table.hidden = !rows.length;
  table.replaceChildren(head, body);
};

const tagged = (text, ...tags) => {
  const made = element("span", "", text);
  made.append(...tags.filter(Boolean).map(tag => element("span", "tag", tag)));
  return made;
};

const drawCosts = cost => {
  const unpriced = cost.unpriced ? `without ${counted(cost.unpriced, "node")} of no known price` : "all nodes";
  const tiles = [["Cost", cost.total, unpriced], ["Idle", cost.idle, "requested by no pod"],
    ["Offered", cost.offered, "reclaimed, and held by no pod yet"], ["Used", cost.used, "held as Mid and Batch, and not bought"]];
  byId("costs").replaceChildren(...tiles.map(([label, value, about]) => {
    const tile = element("div", "tile");
    tile.append(element("h2", "", label), element("strong", "", `$${value.toFixed(2)}/h`), element("span", "", about));
    return tile;
  }));
};

const costs = makeCosts();
let costPlot = null;

const drawSpending = async (cost, time) => {
  if (!costPlot) {
    await remembered("costs", past => rememberCosts(costs, past));
    costPlot = makePlot("Cost", "$ an hour", COSTS);
    byId("spending").append(costPlot.root, legend(COSTS));
  }
  rememberCost(costs, time, cost);
  costPlot.draw({ times: [...costs.times], lines: Object.keys(COSTS).map(kind => [kind, [...costs.values[kind]]]) });
};

let done = []; // the events of the timeline
const timelineTable = tableBehind(() => [["Time", "Kind", "What was done"],
  done.map(({ time, lane, text }) => [lane === "failed" ? "bad-text" : "", new Date(time).toLocaleString(), LANES[lane], text]).reverse()]);
byId("timeline").after(timelineTable.behind);

const drawDone = (rounds, latest) => {
  const events = done = eventsOf(rounds, { did, happened, isSoft: act => SOFT.has(act.reason) });
  byId("timeline").classList.toggle("none", !events.length);
  timelineTable.behind.hidden = !events.length;
  timelineTable.refresh();
  const last = Math.max(latest ? Date.parse(latest.time) : 0, events.length ? events.at(-1).time : 0);
  if (events.length) drawTimeline(byId("timeline"), events, byId("autoscaler").clientWidth || 400, last);
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
  ["Mode", "", row => row.mode],
  ["Target", "number", row => String(row.target_size)],
  ["Min", "number", row => String(row.min_size)],
  ["Max", "number", row => String(row.max_size)],
  ["Ready", "number", row => String(row.nodes.ready)],
  ["Cost/h", "number", row => row.refused ? "" : dollars(row.cost_per_hour)],
  ["State", "reasons", row => row.refused ? element("span", "bad-text", row.refused) : condition(row)],
], [...groups, ...refused.map(each => ({
  id: each.group, mode: "", target_size: "", min_size: "", max_size: "", nodes: { ready: "" }, refused: each.reason,
}))]);

const whyNone = (row, plan) => {
  const unplaced = plan.unplaced.find(each => each.position === row.position);
  if (!unplaced) return "";
  const reasons = unplaced.reasons.map(each => `${listed(each.groups)}: ${each.reasons.join(", ")}`);
  return [...(unplaced.awaiting ? ["A group could take them in a later round"] : []), ...reasons].join("; ");
};

const drawPending = plan => {
  const waiting = plan.pending.filter(row => row.unplaced || row.triggered || row.on_nodes || row.reclaimed);
  drawTable("pending", [
    ["Pods", "wide", row => tagged(listed(row.pods, row.count), row.count > 1 && `${row.count} alike`)],
    ["Each requests", "", row => requested(row.requests)],
    ["Fit on nodes", "number", row => String(row.on_nodes)],
    ["Reclaimed", "number", row => String(row.reclaimed)],
    ["New node", "number", row => String(row.triggered)],
    ["None", "number", row => String(row.unplaced)],
    ["Why none", "reasons", row => whyNone(row, plan)],
  ], waiting.slice(0, MAX_CLASSES));
  const total = sum(plan.pending, "count");
  const aside = plan.aside.map(row => `${row.count} (${row.reason})`);
  byId("pending-title").textContent = `Pending pods: ${total || "none"}` + (aside.length ? `, left aside: ${aside.join(", ")}` : "");
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
    ["Nodes", "number", row => String(row.nodes)],
    ["Pods", "number", row => String(row.pods)],
    ["C nodes $/h", "number", price("nodes_price")],
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
    `${dollars(cost_per_hour)}/h on ${Object.entries(nodes).map(([group, count]) => `${count} x ${group}`).join(" + ")}`;
  byId("comparison").textContent = !compared || compared.single.cost_per_hour === null ? "" : [
    `One group: ${placed(compared.single)}${compared.uses_several ? "" : ", taken"}`,
    ...(compared.several ? [`several: ${placed(compared.several)}${compared.uses_several ? ", taken" : ""}`] : []),
    ...(compared.minimum === null ? [] : [`perfect fit, the theoretical minimum: ${dollars(compared.minimum)}/h`]),
  ].join("; ") + ".";
};

const share = value => value === null ? "" : `${trimmed(100 * value, 1)} %`;
const percent = value => value === null ? "unknown" : `${trimmed(value, 1)} %`;

const drawLeaving = rows => drawTable("leaving", [
  ["On its way out", "wide", row => row.node],
  ["Group", "", row => row.group],
  ["Why", "", row => row.kind],
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
  const saved = found.savable_per_hour ? `, ${dollars(found.savable_per_hour)}/h` : "";
  byId("staying-title").textContent = `Nodes that could go: ${count || "none"}${count ? `, ${found.goes || "none"} of them now${saved}${first}` : ""}`;
  byId("cooldown").textContent = found.cooldown && `Nothing is deleted for now: ${found.cooldown}.`;
  drawTable("could-go", [
    ["Node", "wide", row => tagged(row.node, row.standing === "goes" && "goes now")],
    ["Group", "", row => row.group],
    ["Requested", "number", row => share(row.utilization)],
    ["Pods", "number", row => String(row.pods)],
    ["Cost/h", "number", row => row.cost_per_hour === null ? "" : dollars(row.cost_per_hour)],
    ["Unneeded since", "", row => row.unneeded_since ? moment(row.unneeded_since) : ""],
    ["Why", "reasons", row => because(row)],
  ], rows, row => row.standing === "goes" ? "chosen" : "");
  drawTable("staying", [
    ["Stays because", "", row => row.reason || row.standing],
    ["Nodes", "number", row => String(row.count)],
    ["", "wide", row => listed(row.nodes, row.count)],
    ["For example", "reasons", row => row.detail],
  ], found.stay.filter(row => row.standing !== "unneeded"));
};

const toBeDone = row => [
  ...[["tainted, not ready", row.unhealthy], ["tainted", row.taint], ["untainted", row.untaint], ["drained", row.drained],
    ["deleted", row.deleted]].filter(([, nodes]) => nodes.length).map(([what, nodes]) => `${listed(nodes)} ${row.dry ? "would be " : ""}${what}`),
  ...(row.increase ? [`${counted(row.increase, "node")} more ${row.dry ? "would be " : ""}asked for`] : []),
  ...row.refusals,
].join("; ");

const drawScans = rows => {
  byId("scans-title").hidden = !rows.length;
  drawTable("scans", [
    ["Group", "", row => tagged(row.group, row.dry && "dry", row.locked && "waits for nodes", row.breaker_open && "asks for no more")],
    ["Cpu", "number", row => row.from_zero ? "no nodes" : percent(row.cpu_percent)],
    ["Memory", "number", row => row.from_zero ? "no nodes" : percent(row.memory_percent)],
    ["Shrinks below", "number", row => `${row.thresholds.lower} %, ${row.thresholds.upper} %`],
    ["Grows above", "number", row => `${row.thresholds.scale_up} %`],
    ["Untainted", "number", row => String(row.untainted)],
    ["Tainted", "number", row => String(row.tainted + row.force_tainted)],
    ["Cordoned", "number", row => String(row.cordoned)],
    ["Delta", "number", row => row.delta > 0 ? `+${row.delta}` : String(row.delta)],
    ["Rules", "reasons", row => row.error ? element("span", "bad-text", row.error)
      : row.steps.map(step => step.delta ? `${step.rule} (${step.delta > 0 ? "+" : ""}${step.delta})` : step.rule).join(", ")],
    ["Done", "reasons", row => toBeDone(row)],
  ], rows);
};

const happened = ({ what, group, nodes, seconds, code, message }) => {
  const said = {
    "registered": `${group}: ${counted(nodes, "node")} up, all that was asked for, after ${Math.round(seconds)} s`,
    "timed out": `${group}: ${counted(nodes, "node")} did not come within ${Math.round(seconds)} s`,
    "taken back": `${group}: nothing is on its way any more`,
    "creation failed": `${group}: the cloud could not make ${counted(nodes, "node")}: ${code}: ${message}`,
    "backoff ended": `${group} may grow again`,
    "deleted by others": `${group}: ${message}`,
    "held back": `${group}: ${message}`,
  };
  return said[what] || `${group}: ${what}`;
};

const did = act => {
  const size = act.nodes ? ` from ${act.from_size} to ${act.to_size} nodes` : "";
  const named = act.node_names.length ? ` (${listed(act.node_names)})` : "";
  const cost = !act.cost_per_hour ? "" : act.cost_per_hour < 0 ? `, which saves ${dollars(-act.cost_per_hour)}/h` : ` for ${dollars(act.cost_per_hour)}/h`;
  const end = act.error ? `, which failed: ${act.error}` : act.done ? "" : act.mode === "enforce" ? " (not done)" : ` (${act.mode} only)`;
  return `${act.what} ${act.group}${size}${named}${cost}, ${act.reason}${end}`;
};

const now = group => group &&
  `Now ${group.nodes.ready} of ${group.target_size} ready` + (group.upcoming ? `, ${group.upcoming} on the way` : "") +
  (group.backoff ? `, left alone until ${moment(group.backoff.until)}` : "");

const drawHistory = (rounds, earlier, groups) => {
  const byGroup = new Map(groups.map(group => [group.id, group]));
  const lines = [];
  const add = (time, text, isBad, since) => {
    const line = element("li"), when = element("time", "", moment(time));
    when.dateTime = time;
    line.append(when, element("span", isBad ? "bad-text" : "", text));
    if (since) line.append(element("span", "since", since));
    lines.push(line);
  };
  for (const [index, round] of [...rounds, ...earlier].entries()) {
    if (index === rounds.length) lines.push(element("li", "quiet", "Before this manager started:"));
    for (const each of round.leaving) {
      if (each.stage === "gone") add(round.time, `${each.node} of ${each.group} is gone`);
      if (each.stage === "failed") add(round.time, `${each.node} of ${each.group} stays: ${each.error}`, true);
    }
    for (const each of round.incidents) add(round.time, happened(each), ["timed out", "creation failed", "deleted by others"].includes(each.what));
    for (const act of round.decisions.filter(each => !SOFT.has(each.reason))) {
      const grew = act.done && act.what === "increase";
      add(round.time, did(act), Boolean(act.error), grew ? now(byGroup.get(act.group)) : "");
      if (grew) byGroup.delete(act.group); // what is so now is said once, at the last thing that was done
    }
    if (!round.decisions.length && !round.incidents.length && !round.leaving.some(each => ["gone", "failed"].includes(each.stage))) {
      const without = sum(round.pending, "unplaced");
      add(round.time, round.held || `${round.outcome}${without ? `: ${counted(without, "pod")} without a node` : ""}`);
    }
  }
  const shownLines = lines.slice(0, MAX_HISTORY);
  byId("history").replaceChildren(...(shownLines.length ? shownLines : [element("li", "quiet", "Nothing yet")]));
};

const drawNotConsidered = plan => {
  const lines = [
    ...plan.skipped.map(row => `${listed(row.groups)}: ${row.reason}`),
    ...plan.caps.map(row => `${row.group} gets ${row.allowed} of ${counted(row.wanted, "node")}: ${row.limit}`),
    ...plan.unread.map(row => `${row.object}: ${row.problem}`),
  ];
  const shownLines = lines.slice(0, MAX_REASONS);
  if (lines.length > MAX_REASONS) shownLines.push(`and ${lines.length - MAX_REASONS} more`);
  byId("not-considered").replaceChildren(...shownLines.map(text => element("li", "", text)));
  byId("not-considered-title").hidden = byId("not-considered").hidden = !lines.length;
};

const drawState = latest => {
  const said = !latest ? "No round is over yet."
    : latest.held ? `Nothing is decided: ${latest.held}.`
    : `Last round at ${moment(latest.time)}: ${latest.outcome}${latest.dry_run ? " (dry run)" : ""}.`;
  byId("autoscaler-state").textContent = said;
};

const refreshAutoscaler = async () => {
  const section = byId("autoscaler");
  try {
    const response = await fetch("api/v1/groups", { cache: "no-store" });
    if (response.status === 404) return; // this manager has no autoscaler
    if (!response.ok) throw new Error(`api/v1/groups: ${response.status}`);
    const groups = await response.json();
    const { latest, rounds, earlier } = await answered(`api/v1/decisions?brief=true&limit=${MAX_ROUNDS}`);
    drawState(latest);
    section.hidden = false;
    drawCosts(groups.cost_per_hour);
    await drawSpending(groups.cost_per_hour, latest ? Date.parse(latest.time) : Date.now());
    drawGroups(groups);
    drawPending(latest || { pending: [], unplaced: [], aside: [] });
    drawReserved(latest);
    drawNotConsidered(latest || { skipped: [], caps: [], unread: [] });
    const isLatest = latest !== null && latest.options.length > 0;
    drawOptions(isLatest ? latest : rounds.find(round => round.options.length), isLatest);
    drawLeaving(latest ? latest.leaving : []);
    drawDisruption(latest && latest.scale_down);
    drawStaying(latest && latest.scale_down);
    drawScans(latest ? latest.scans : []);
    drawDone([...rounds, ...earlier], latest);
    drawHistory(rounds, earlier, groups.groups);
  } catch (error) {
    byId("autoscaler-state").textContent = `The autoscaler does not answer (${error.message}).`;
  }
  setTimeout(refreshAutoscaler, REFRESH_MILLISECONDS);
};

refreshAutoscaler();
