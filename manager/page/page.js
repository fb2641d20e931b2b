"use strict";
// Everything the cluster says reaches the page as textContent, never as markup.

const REFRESH_MILLISECONDS = 3000;
const TOTALS = [["allocatable", "Allocatable"], ["requested", "Requested"], ["used", "Used"],
  ["reclaimable", "Reclaimable"], ["mid", "Mid on offer now"], ["batch", "Batch on offer now"]];

const byId = id => document.getElementById(id);
const element = (tag, className = "", text = "") => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  return made;
};

const cpu = milli => Math.abs(milli) < 1000 && milli !== 0 ? `${milli}m` : trimmed(milli / 1000, milli < 100000 ? 2 : 0);
const memory = bytes => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${trimmed(value, Math.abs(value) < 100 ? 1 : 0)} ${units[unit]}`;
};
const shown = (value, unit) => unit === "milli" ? `${trimmed(value / 1000, 3)} cores` : unit === "bytes" ? memory(value) : `${value} %`;
// What has not changed is left as it is, so that a click, the focus and a selection in it stay.
const renew = (of, ...parts) => {
  if (parts.length !== of.childNodes.length || parts.some((part, place) => !part.isEqualNode(of.childNodes[place]))) of.replaceChildren(...parts);
};
const clock = () => moment(Date.now());

const course = makeCourse();
let coursePlots = null;
const place = { room: "overview", detail: "", filter: "" }; // `detail` is a node that is to be opened
const known = {}; // the last answers: status, nodes, time, total, fleet, groups
const hasAutoscaler = () => known.status.autoscaler;

const answered = async path => {
  const response = await asked(path);
  if (!response.ok) throw new Error(`${path}: ${(await response.json()).detail || response.status}`);
  return response.json();
};

// An older manager remembers nothing: plots begin with the page then.
const remembered = async (path, take) => {
  try { take(await answered(`api/v1/${path}`)); } catch (error) { console.info(error.message); }
};

const ago = (then, now) => `${Math.max(0, Math.round((Date.parse(now) - Date.parse(then)) / 1000))} s ago`;

const toggle = async name => {
  const row = rows.get(name);
  const open = row.detail === null;
  row.button.setAttribute("aria-expanded", String(open));
  history.replaceState(null, "", open ? nodePath(name) : "#/nodes");
  if (!open) {
    row.detail.remove();
    row.detail = null;
    return;
  }
  const line = element("tr", "detail"), cell = element("td");
  const reason = element("p", "sentence"), plots = makeNodePlots(course, name), often = makeHistograms(name), terms = element("div", "told", "Loading");
  const more = element("div", "told");
  cell.colSpan = COLUMNS.length;
  const fold = element("details");
  fold.append(element("summary", "", "Promises kept, last write, and how often how much is used"), often.root, more);
  fold.addEventListener("toggle", () => drawOften(row));
  cell.append(reason, plots.root, terms, fold);
  line.append(cell);
  row.body.append(line);
  row.detail = { remove: () => line.remove(), reason, plots, often, terms, more, fold, horizon: HORIZON };
  await beginDetail(name);
  if (row.detail) await drawDetail(known.nodes.find(node => node.name === name), row);
};

const beginDetail = name => remembered(`nodes/${encodeURIComponent(name)}/history`, past => fillHistory(course, name, past));

const lendingSentence = ({ mid, allocatable, reason }) => `It lends ${amounts(mid)} as Mid` +
  (allocatable ? `, of cpu ${cpu(allocatable.cpu_milli)} and memory ${memory(allocatable.memory_bytes)}` : "") + `. Decided: ${reason}.`;

// Loaded when it is unfolded, when it has a width.
const drawOften = row => { if (row.detail?.fold.open) row.detail.often.draw(row.reported); };

// The plots are redrawn in place, what is said is made anew.
const drawDetail = async (node, row) => {
  const { reason, plots, terms: cell, more, horizon } = row.detail, { name } = node;
  reason.textContent = lendingSentence(node);
  plots.draw(node.allocatable, horizon);
  row.reported = node.reported;
  drawOften(row);
  try {
    const answer = await answered(`api/v1/nodes/${encodeURIComponent(name)}`);
    if (row.detail && answer.prediction?.promises.length) row.detail.horizon = answer.prediction.promises[0].horizon_seconds;
    const left = await whyHere(name);
    const tiers = Object.entries(answer.tiers).flatMap(([tier, of]) => {
      const resources = element("div", "resources");
      resources.append(explained(tier, "cpu", "milli", of.cpu), explained(tier, "memory", "bytes", of.memory));
      const said = [element("p", "written", `${titled(tier)} ${nowOffered(of.on_offer)}. Decided now: ${of.reason}`)];
      if (of.shortfall) said.unshift(element("p", "notice bad", `${titled(tier)} is short: ${of.shortfall.reason}`));
      return [resources, ...said];
    });
    const waits = answer.prod_waits.map(each => element("p", each.since ? "notice bad" : "written", `${each.sentence}.`));
    renew(cell, ...tiers, ...waits, ...answer.pending ? [element("p", "written", waiting(answer.pending))] : [], ...left ? [element("p", "written", left)] : []);
    renew(more, element("p", "written", written(answer.last_write)), ...answer.prediction ? promised(answer.prediction) : []);
  } catch (error) {
    cell.textContent = `No explanation: ${error.message}`;
  }
};

const because = ({ reason, detail }) => detail.includes(reason) ? detail : `${reason}: ${detail}`;

// Empty where this manager has no autoscaler, or no word on the node.
const whyHere = async name => {
  if (!hasAutoscaler()) return "";
  const response = await asked(`api/v1/autoscaler/nodes/${encodeURIComponent(name)}`);
  if (!response.ok) return "";
  const { answer, moves } = await response.json();
  const pods = Object.entries(moves).map(([pod, node]) => `${pod} to ${node}`);
  return `Why it is still here: ${answer.standing}. ${because(answer)}${pods.length ? `. Its pods would move: ${pods.join(", ")}` : ""}`;
};

const titled = tier => tier[0].toUpperCase() + tier.slice(1);

const amounts = ({ cpu_milli, memory_bytes }) => `cpu ${cpu(cpu_milli)}, memory ${memory(memory_bytes)}`;

const nowOffered = offer => offer ? `on the Node: ${amounts(offer)}` : "is not on the Node";

// Exact bytes beside rounded memory.
const amountCell = ({ value, unit }) => {
  const cell = element("td", "number", shown(value, unit));
  if (unit === "bytes" && value) cell.append(element("span", "tag", `${value.toLocaleString("en")} B`));
  return cell;
};

const explained = (tier, resource, unit, { terms, bound, result }) => {
  const section = element("section");
  const title = element("h3", "", `${titled(tier)} ${resource}: ${shown(result, unit)} `);
  title.append(element("small", "", `decided by ${bound}`));
  section.append(title);
  if (!terms.length) {
    section.append(element("p", "unknown", "No term went into it; the reason is below."));
    return section;
  }
  const table = element("table", "terms");
  const deciding = new Set(bound.split(/ [+-] /));
  for (const term of terms) {
    const line = element("tr", deciding.has(term.name) ? "bound" : "");
    line.append(element("td", "", term.name.replaceAll("_", " ")), amountCell(term),
      element("td", "source", term.time ? `${term.source}, ${moment(term.time)}` : term.source));
    table.append(line);
  }
  const total = element("tr", "sum");
  total.append(element("td", "", `= ${titled(tier)} ${resource}`), amountCell({ value: result, unit }), element("td", "source", bound));
  table.append(total);
  section.append(table);
  return section;
};

const written = last => {
  if (!last) return "This manager has not written to the Node since it started.";
  const what = Object.entries(last.offers).map(([tier, offer]) => `${titled(tier)} ${offer ? amounts(offer) : "taken away"}`);
  return `Last write ${new Date(last.time).toLocaleString()} (${last.why}): ${what.join("; ")}`;
};

const lined = (table, heads, lines) => {
  const head = table.createTHead().insertRow();
  for (const each of heads) head.append(element("th", each.startsWith(" ") ? "number" : "", each.trim()));
  const body = table.createTBody();
  for (const [kind, ...texts] of lines) {
    const line = body.insertRow();
    texts.forEach((text, place) => line.append(element("td",
      [heads[place].startsWith(" ") ? "number" : "", place === 0 ? kind : ""].join(" ").trim(), text)));
  }
  return table;
};

const promised = ({ model, prior, promises, shadows, withdrawals, recommended, problem }) => {
  if (!problem && !promises.length) return [];
  const said = [element("h3", "", "Promises")];
  // The longest window is what outcomes are kept for: 28 days of the agent's prediction, whose hour may be shorter.
  const longest = Math.max(0, ...withdrawals.map(each => each.window_seconds)), within = longest ? ` in at most ${lasting(longest)}` : "";
  if (problem) said.push(element("p", "notice bad", `Left out: ${problem}`));
  if (prior) said.push(element("p", "quiet", `${model || "The model"}'s margin starts from the prior: ${prior}.`));
  if (promises.length) {
    said.push(lined(element("table", "kept"), ["Horizon", "Resource", " Peak", " Target", " Violated", " Lent", ` Outcomes${within}`],
      promises.map(each => [tooMany(each), `next ${lasting(each.horizon_seconds)}`, each.resource,
        each.peak === null ? "unknown" : each.resource === "cpu" ? cpu(each.peak) : memory(each.peak),
        each.target_violation_percent === null ? "none" : percentage(each.target_violation_percent),
        percentage(each.violation_percent), percentage(each.lent_percent), String(each.outcomes)])));
  }
  const withdrawn = withdrawals.map(each => `cpu ${percentage(each.cpu_percent_per_day)}, memory ` +
    `${percentage(each.memory_percent_per_day)} (in at most the last ${lasting(each.window_seconds)})`);
  if (withdrawn.length) said.push(element("p", "written", `Taken back in a day of the prediction, of what is lent: ${withdrawn.join("; ")}.`));
  if (shadows.length) {
    said.push(element("h3", "", "Models beside it, which lend nothing"));
    said.push(lined(element("table", "kept"),
      ["Model", " cpu violated", " memory violated", " cpu lent", " memory lent", ` Outcomes${within}`],
      shadows.map(each => ["", each.model, percentage(each.cpu_violation_percent), percentage(each.memory_violation_percent),
        percentage(each.cpu_lent_percent), percentage(each.memory_lent_percent), String(each.outcomes)])));
  }
  if (recommended) said.push(element("p", recommended.model === model ? "written" : "notice", recommended.sentence));
  return said;
};

const tooMany = ({ violation_percent, target_violation_percent }) =>
  target_violation_percent !== null && violation_percent > target_violation_percent ? "warn-text" : "";

// What the agents measured; the plot of costs cannot tell a withdrawal from an offer that was not made.
const takenBack = withdrawal => withdrawal
  ? `Of what is lent, ${percentage(withdrawal.cpu_percent_per_day)} of cpu and ${percentage(withdrawal.memory_percent_per_day)} of memory is taken ` +
    `back in a day of the prediction, as agents of ${withdrawal.nodes} nodes measured in at most the last ${lasting(withdrawal.window_seconds)}.`
  : "How much of what is lent is taken back is not known: no agent of a node that lends has measured it.";

const drawFleet = ({ rates, prior, refused_nodes, withdrawal = null, kinds = [], worst_nodes: worst = [] }) => {
  byId("taken-back").textContent = takenBack(withdrawal);
  byId("prior").textContent = (prior.source === "fleet"
    ? `Nodes without outcomes start from what ${prior.nodes} nodes had learned at ${new Date(prior.pooled).toLocaleString()}.`
    : "Nodes without outcomes start from the built-in prior.")
    + (refused_nodes ? ` ${refused_nodes} nodes say of their promises what cannot be, and are left out.` : "");
  renew(byId("kept"), ...lined(element("table"), ["Nodes with", "Horizon", "Resource", " Target", " Violated", " Outcomes", " Nodes", "Kept"],
    [...rates, ...kinds].map(rate => [rate.missed ? "warn-text" : "", rate.kind ?? "any pods", `next ${lasting(rate.horizon_seconds)}`, rate.resource,
      percentage(rate.target_violation_percent), percentage(rate.violation_percent), trimmed(rate.outcomes, 0), trimmed(rate.nodes, 0),
      rate.missed ? "no" : rate.outcomes < LEAST_OUTCOMES ? "too few outcomes to say" : "yes"])).children);
  byId("worst-title").hidden = !worst.length;
  drawTable("worst", [
    ["Node", "wide", named],
    ["Horizon", "", row => `next ${lasting(row.horizon_seconds)}`],
    ["Resource", "", "resource"],
    ["Target", "number", row => percentage(row.target_violation_percent)],
    ["Violated", "number", row => percentage(row.violation_percent)],
    ["Outcomes", "number", row => trimmed(row.outcomes, 0)],
    ["Likely cause", "", row => row.cause.toLowerCase()],
  ], worst, row => tooMany(row));
};

const waiting = ({ reason, until }) =>
  `Not on the Node yet: ${reason}${until ? `, until ${moment(until)}` : ""}`;

const drawTotals = nodes => {
  renew(byId("totals"), ...TOTALS.map(([amount, label]) => {
    const known = nodes.filter(node => node[amount]);
    const tile = element("div", OFFERED.has(amount) ? "tile offer" : "tile");
    const sum = (key, of = amount) => known.reduce((total, node) => total + (node[of] ? node[of][key] : 0), 0);
    const share = key => `${trimmed(100 * sum(key) / sum(key, "allocatable"), 0)} %`;
    tile.append(element("h2", "", label));
    if (known.length || !nodes.length) {
      const tags = [
        amount !== "allocatable" && known.some(node => node.allocatable) && `${share("cpu_milli")} CPU, ${share("memory_bytes")} memory`,
        trendOf(course, amount),
        known.length < nodes.length && `of ${known.length} of ${nodes.length} nodes`,
        amount === "mid" && whyMoreMid(nodes),
      ];
      tile.append(element("strong", "", `${trimmed(sum("cpu_milli") / 1000, 1)} cores`), element("span", "", memory(sum("memory_bytes"))),
        ...tags.filter(Boolean).map(text => element("span", "tag", text)));
    } else {
      tile.append(element("strong", "unknown", "unknown"), element("span", "", "no node has reported"));
    }
    return tile;
  }));
};

const drawCourse = total => {
  if (!coursePlots) {
    coursePlots = makePlots("Cluster: ", course, TOTAL);
    byId("course").append(coursePlots.root);
  }
  coursePlots.draw(total.allocatable);
};

const drawNotices = (status, alarms) => {
  const notices = alarms.map(alarm => ["bad", `Prediction target missed: ${alarm}.`]);
  if (status.waiting_for.length) notices.push(["", `Still reading the cluster: ${status.waiting_for.join(", ")}.`]);
  for (const [loop, seconds] of Object.entries(status.overdue_loops)) {
    notices.push(["bad", `The current iteration of the ${loop} has run for ${Math.round(seconds)} s. Nothing new is decided meanwhile.`]);
  }
  if (status.config_problem) {
    notices.push(["bad", `The newest configuration is rejected, the last valid one is in effect. ${status.config_problem}`]);
  } else if (!status.colocation_enabled && !status.waiting_for.length) {
    notices.push(["", `Colocation is disabled, so nothing is on offer: set "enable": true under the key colocation-config ` +
      `of the ConfigMap ${status.config_map}.`]);
  }
  if (known.missing) notices.push(["", `The cluster has no node ${known.missing}.`]);
  if (status.dry_run) notices.push(["", "Dry run: the manager decides and explains, and writes nothing."]);
  if (known.nodes && !known.nodes.length && !status.waiting_for.length) notices.push(["", "The cluster has no nodes."]);
  show(notices);
  byId("cluster").textContent = status.cluster;
  document.title = `Headroom: ${status.cluster}`;
  byId("role").textContent = status.leader ? "this manager writes" : "another manager writes, this one follows";
};

const show = notices => renew(byId("notices"), ...notices.map(([kind, text]) => element("p", `notice ${kind}`, text)));

const newestReport = ({ nodes, time }) => {
  const newest = nodes.map(node => node.reported).filter(Boolean).sort().at(-1);
  return newest ? `, newest report ${ago(newest, time)}` : "";
};

// What was missed, the manager remembers.
const loadNodes = async hasMissed => {
  if (hasMissed) {
    Object.assign(course, makeCourse());
    await remembered("history", past => recordHistory(course, TOTAL, past));
  }
  const { nodes, time } = await answered("api/v1/nodes");
  Object.assign(known, { nodes, time, total: totalOf(nodes) });
  record(course, Date.parse(time), [[TOTAL, known.total], ...nodes.map(node => [node.name, node])]);
};

const loadNodesRoom = async hasMissed => {
  await loadNodes(hasMissed);
  const wanted = place.detail;
  if (wanted) turnTo(known.nodes, wanted);
  redraw();
  if (wanted) known.missing = rows.has(wanted) ? "" : wanted;
  place.detail = "";
  if (rows.has(wanted) && !rows.get(wanted).detail) await toggle(wanted);
  rows.get(wanted)?.line.scrollIntoView();
  if (hasMissed) await Promise.all([...rows].filter(([, row]) => row.detail).map(([name]) => beginDetail(name)));
};

const loadFleet = async () => { known.fleet = await answered("api/v1/prediction"); };

const loadPrediction = async () => {
  await loadFleet();
  drawFleet(known.fleet);
};

// None where this manager has no autoscaler.
const loadGroups = async () => {
  if (!hasAutoscaler()) return;
  known.groups = await answered("api/v1/groups");
  estimatedGroups = new Set(known.groups.cost_per_hour.estimated_groups);
};

const redraw = () => { if (known.nodes) drawNodes(known.nodes, known.time); };

