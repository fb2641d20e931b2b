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

const trimmed = (value, digits) => String(Number(value.toFixed(digits)));
const cpu = milli => Math.abs(milli) < 1000 && milli !== 0 ? `${milli}m` : trimmed(milli / 1000, milli < 100000 ? 2 : 0);
const memory = bytes => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${trimmed(value, Math.abs(value) < 100 ? 1 : 0)} ${units[unit]}`;
};
const shown = (value, unit) => unit === "milli" ? `${trimmed(value / 1000, 3)} cores` : unit === "bytes" ? memory(value) : `${value} %`;
const clock = () => new Date().toLocaleTimeString();

const course = makeCourse();
let coursePlots = null;
let lastGood = null;
const linked = (() => {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
})();

const answered = async path => {
  const response = await fetch(path, { cache: "no-store" });
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
  history.replaceState(null, "", open ? `#${encodeURIComponent(name)}` : location.pathname);
  if (!open) {
    row.detail.remove();
    row.detail = null;
    return;
  }
  const line = element("tr", "detail"), cell = element("td");
  const reason = element("p"), plots = makePlots("", course, name), truth = makeTruth(course, name), often = makeHistograms(name), terms = element("div", "told", "Loading");
  cell.colSpan = COLUMNS.length;
  cell.append(reason, plots.root, truth.root, often.root, terms);
  line.append(cell);
  row.body.append(line);
  row.detail = { remove: () => line.remove(), reason, plots, truth, often, terms, horizon: HORIZON };
  await remembered(`nodes/${encodeURIComponent(name)}/history`, past => fillHistory(course, name, past));
  if (row.detail) await drawDetail(lastGood.nodes.find(node => node.name === name), row);
};

// The plots are redrawn in place, what is said is made anew.
const drawDetail = async (node, row) => {
  const { reason, plots, truth, often, terms: cell, horizon } = row.detail, { name } = node;
  reason.textContent = node.reason;
  plots.draw(node.allocatable);
  truth.draw(horizon);
  often.draw(node.reported);
  try {
    const answer = await answered(`api/v1/nodes/${encodeURIComponent(name)}`);
    if (row.detail && answer.prediction?.promises.length) row.detail.horizon = answer.prediction.promises[0].horizon_seconds;
    const tiers = Object.entries(answer.tiers).flatMap(([tier, of]) => {
      const resources = element("div", "resources");
      resources.append(explained(tier, "cpu", "milli", of.cpu), explained(tier, "memory", "bytes", of.memory));
      const said = [element("p", "written", `${titled(tier)} ${nowOffered(of.on_offer)}. ${of.reason}`)];
      if (of.shortfall) said.unshift(element("p", "notice bad", `${titled(tier)} is short: ${of.shortfall.reason}`));
      return [resources, ...said];
    });
    cell.replaceChildren(...tiers, element("p", "written", written(answer.last_write)));
    if (answer.prediction) cell.append(...promised(answer.prediction));
    if (answer.pending) cell.append(element("p", "written", waiting(answer.pending)));
    const left = await whyHere(name);
    if (left) cell.append(element("p", "written", left));
  } catch (error) {
    cell.textContent = `No explanation: ${error.message}`;
  }
};

const because = ({ reason, detail }) => detail.includes(reason) ? detail : `${reason}: ${detail}`;

// Empty where this manager has no autoscaler, or no word on the node.
const whyHere = async name => {
  if (byId("autoscaler").hidden) return "";
  const response = await fetch(`api/v1/autoscaler/nodes/${encodeURIComponent(name)}`, { cache: "no-store" });
  if (!response.ok) return "";
  const { answer, moves } = await response.json();
  const pods = Object.entries(moves).map(([pod, node]) => `${pod} to ${node}`);
  return `Why it is still here: ${answer.standing}. ${because(answer)}${pods.length ? `. Its pods would go: ${pods.join(", ")}` : ""}`;
};

const titled = tier => tier[0].toUpperCase() + tier.slice(1);

const amounts = ({ cpu_milli, memory_bytes }) => `cpu ${cpu(cpu_milli)}, memory ${memory(memory_bytes)}`;

const nowOffered = offer => offer ? `on the Node: ${amounts(offer)}` : "is not on the Node";

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
    line.append(element("td", "", term.name.replaceAll("_", " ")), element("td", "number", shown(term.value, term.unit)),
      element("td", "source", term.time ? `${term.source}, ${new Date(term.time).toLocaleTimeString()}` : term.source));
    table.append(line);
  }
  section.append(table);
  return section;
};

const written = last => {
  if (!last) return "This manager has not written to the Node since it started.";
  const what = Object.entries(last.offers).map(([tier, offer]) => `${titled(tier)} ${offer ? amounts(offer) : "taken away"}`);
  return `Last write ${new Date(last.time).toLocaleString()} (${last.why}): ${what.join("; ")}`;
};

const percentage = value => value === null ? "unknown" : `${trimmed(value, 2)} %`;

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

const lasting = seconds => seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${trimmed(seconds / 60, 1)} min` :
  seconds < 172800 ? `${trimmed(seconds / 3600, 1)} h` : `${trimmed(seconds / 86400, 1)} days`;

const promised = ({ model, prior, promises, shadows, withdrawals, recommended, problem }) => {
  if (!problem && !promises.length) return [];
  const said = [element("h3", "", "Promises")];
  if (problem) said.push(element("p", "notice bad", `Left out: ${problem}`));
  if (prior) said.push(element("p", "quiet", `${model || "The model"}'s margin starts from the prior: ${prior}.`));
  if (promises.length) {
    said.push(lined(element("table", "kept"), ["Horizon", "Resource", " Peak", " Target", " Violated", " Lent", " Outcomes in 28 days"],
      promises.map(each => [tooMany(each), `next ${lasting(each.horizon_seconds)}`, each.resource,
        each.peak === null ? "unknown" : each.resource === "cpu" ? cpu(each.peak) : memory(each.peak),
        each.target_violation_percent === null ? "none" : percentage(each.target_violation_percent),
        percentage(each.violation_percent), percentage(each.lent_percent), String(each.outcomes)])));
  }
  const withdrawn = withdrawals.map(each => `cpu ${percentage(each.cpu_percent_per_day)}, memory ` +
    `${percentage(each.memory_percent_per_day)} (over ${lasting(each.window_seconds)})`);
  if (withdrawn.length) said.push(element("p", "written", `Taken back a day, of what is lent: ${withdrawn.join("; ")}.`));
  if (shadows.length) {
    said.push(element("h3", "", "Models beside it, which lend nothing"));
    said.push(lined(element("table", "kept"),
      ["Model", " cpu violated", " memory violated", " cpu lent", " memory lent", " Outcomes in 28 days"],
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
    `back a day, as agents of ${withdrawal.nodes} nodes measured over ${lasting(withdrawal.window_seconds)} at most.`
  : "How much of what is lent is taken back is not known: no agent of a node that lends has measured it.";

const drawFleet = ({ rates, prior, refused_nodes, withdrawal = null }) => {
  byId("taken-back").textContent = takenBack(withdrawal);
  byId("promises").hidden = !rates.length && prior.source === "built-in" && !refused_nodes;
  byId("prior").textContent = (prior.source === "fleet"
    ? `Nodes without outcomes start from what ${prior.nodes} nodes had learned at ${new Date(prior.pooled).toLocaleString()}.`
    : "Nodes without outcomes start from the built-in prior.")
    + (refused_nodes ? ` ${refused_nodes} nodes say of their promises what cannot be, and are left out.` : "");
  const table = element("table", "");
  table.id = "kept";
  table.setAttribute("aria-labelledby", "promises-title");
  byId("kept").replaceWith(lined(table, ["Horizon", "Resource", " Target", " Violated", " Outcomes", " Nodes", "Kept"],
    rates.map(rate => [rate.missed ? "warn-text" : "", `next ${lasting(rate.horizon_seconds)}`, rate.resource,
      percentage(rate.target_violation_percent), percentage(rate.violation_percent), String(rate.outcomes), String(rate.nodes),
      rate.missed ? "no" : rate.outcomes < 1000 ? "too few outcomes to say" : "yes"])));
};

const waiting = ({ reason, until }) =>
  `Not on the Node yet: ${reason}${until ? `, until ${new Date(until).toLocaleTimeString()}` : ""}`;

const drawTotals = nodes => {
  byId("totals").replaceChildren(...TOTALS.map(([amount, label]) => {
    const known = nodes.map(node => node[amount]).filter(Boolean);
    const tile = element("div", OFFERED.has(amount) ? "tile offer" : "tile");
    const sum = key => known.reduce((total, each) => total + each[key], 0);
    tile.append(element("h2", "", label));
    if (known.length || !nodes.length) {
      tile.append(element("strong", "", `${trimmed(sum("cpu_milli") / 1000, 1)} cores`), element("span", "", memory(sum("memory_bytes"))));
    } else {
      tile.append(element("strong", "unknown", "unknown"), element("span", "", "no node has reported"));
    }
    return tile;
  }));
};

const TOTAL = ""; // the cluster's name among the nodes' in the course

const drawCourse = total => {
  if (!coursePlots) {
    coursePlots = makePlots("Cluster: ", course, TOTAL);
    byId("course").append(coursePlots.root);
  }
  coursePlots.draw(total.allocatable);
};

const drawNotices = (status, nodes, fleet) => {
  const notices = fleet.alarms.map(alarm => ["bad", `A target of predictions is missed: ${alarm}.`]);
  if (status.waiting_for.length) notices.push(["", `Still reading the cluster: ${status.waiting_for.join(", ")}.`]);
  for (const [loop, seconds] of Object.entries(status.overdue_loops)) {
    notices.push(["bad", `The ${loop}'s round has been going on for ${Math.round(seconds)} s: nothing new is decided meanwhile.`]);
  }
  if (status.config_problem) {
    notices.push(["bad", `The newest configuration is refused, the last good one stays in effect. ${status.config_problem}`]);
  } else if (!status.colocation_enabled && !status.waiting_for.length) {
    notices.push(["", `Colocation is disabled, so nothing is on offer: set "enable": true under the key colocation-config ` +
      `of the ConfigMap ${status.config_map}.`]);
  }
  if (status.dry_run) notices.push(["", "Dry run: everything is decided and explained, nothing is written."]);
  if (!nodes.length && !status.waiting_for.length) notices.push(["", "The cluster has no nodes."]);
  show(notices);
  byId("cluster").textContent = status.cluster;
  document.title = `Headroom: ${status.cluster}`;
  byId("role").textContent = status.leader ? "this manager writes" : "another manager writes, this one follows";
};

const show = notices => byId("notices").replaceChildren(
  ...notices.map(([kind, text]) => element("p", `notice ${kind}`, text)));

const refresh = async () => {
  try {
    const [status, { nodes, time }, fleet] = await Promise.all(
      [answered("api/v1/status"), answered("api/v1/nodes"), answered("api/v1/prediction")]);
    const first = lastGood === null;
    lastGood = { status, nodes, time, fleet, at: clock(), total: totalOf(nodes) };
    record(course, Date.parse(time), [[TOTAL, lastGood.total], ...nodes.map(node => [node.name, node])]);
    if (first) turnTo(nodes, linked);
    draw();
    if (first && rows.has(linked)) toggle(linked);
    const newest = nodes.map(node => node.reported).filter(Boolean).sort().at(-1);
    byId("freshness").textContent = `as of ${lastGood.at}${newest ? `, newest report ${ago(newest, time)}` : ""}`;
  } catch (error) {
    if (lastGood) record(course, course.times.at(-1) + REFRESH_MILLISECONDS, null);
    show([["bad", `The manager does not answer (${error.message}). ` +
      (lastGood ? `Below is what it said at ${lastGood.at}.` : "Trying again.")]]);
  }
  setTimeout(refresh, REFRESH_MILLISECONDS);
};

const redraw = () => drawNodes(lastGood.nodes, lastGood.time);

const draw = () => {
  drawNotices(lastGood.status, lastGood.nodes, lastGood.fleet);
  drawFleet(lastGood.fleet);
  drawTotals(lastGood.nodes);
  drawCourse(lastGood.total);
  redraw();
};

byId("filter").addEventListener("input", () => { view.page = 0; if (lastGood) redraw(); });
for (const [id, step] of [["previous", -1], ["next", 1]]) {
  byId(id).addEventListener("click", () => { view.page += step; redraw(); });
}
remembered("history", past => recordHistory(course, TOTAL, past)).then(refresh);
startWorkloads();
