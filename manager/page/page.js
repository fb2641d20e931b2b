"use strict";
// Everything the cluster says reaches the page as textContent, never as markup.

const REFRESH_MILLISECONDS = 3000;
const MAX_ROWS = 500;
const AMOUNTS = ["allocatable", "requested", "used", "predicted_peak", "reclaimable", "mid", "batch"];
const OFFERED = new Set(["mid", "batch"]);
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
const shown = (value, unit) => unit === "milli" ? cpu(value) : unit === "bytes" ? memory(value) : `${value} %`;
const clock = () => new Date().toLocaleTimeString();

const rows = new Map(); // node name -> {body, cells, bars, detail}
let lastGood = null;
const linked = (() => {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
})();

const answered = async path => {
  const response = await fetch(path, { cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${(await response.json()).detail || response.status}`);
  return response.json();
};

const makeBar = () => {
  const bar = element("div", "bar");
  const parts = {};
  for (const name of ["requested", "used", "peak"]) bar.append(parts[name] = element("i", name));
  return { bar, parts };
};

const drawBar = ({ bar, parts }, label, format, allocatable, requested, used, peak) => {
  const full = Math.max(allocatable || 0, requested || 0, used || 0, peak || 0) || 1;
  const place = (part, property, value) => {
    parts[part].hidden = value === null;
    parts[part].style[property] = `${100 * (value || 0) / full}%`;
  };
  place("requested", "width", requested);
  place("used", "width", used);
  place("peak", "left", peak);
  const said = (name, value) => `${name} ${value === null ? "unknown" : format(value)}`;
  bar.title = `${label}: ${[said("used", used), said("peak", peak), said("requested", requested),
    said("allocatable", allocatable)].join(", ")}`;
};

const makeRow = node => {
  const body = element("tbody"), line = element("tr"), name = element("td"), bars = element("td");
  const button = element("button", "name", node.name);
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => toggle(node.name));
  name.append(button);
  if (node.simulated) name.append(element("span", "tag", "simulated"));
  const row = { body, button, bars: [makeBar(), makeBar()], cells: {}, why: element("td", "why"), detail: null };
  bars.append(...row.bars.map(each => each.bar));
  line.append(name, bars);
  for (const amount of AMOUNTS) {
    const cell = element("td", OFFERED.has(amount) ? "number offered" : "number");
    row.cells[amount] = [cell.appendChild(element("span")), cell.appendChild(element("span"))];
    line.append(cell);
  }
  line.append(row.why);
  body.append(line);
  return row;
};

const ago = (then, now) => `${Math.max(0, Math.round((Date.parse(now) - Date.parse(then)) / 1000))} s ago`;

const drawRow = (row, node, time) => {
  for (const amount of AMOUNTS) {
    const value = node[amount], [first, second] = row.cells[amount];
    first.textContent = value ? cpu(value.cpu_milli) : "unknown";
    first.className = value ? "" : "unknown";
    second.textContent = value ? memory(value.memory_bytes) : "";
  }
  for (const [index, key, label, format] of [[0, "cpu_milli", "cpu", cpu], [1, "memory_bytes", "memory", memory]]) {
    const of = amount => node[amount] ? node[amount][key] : null;
    drawBar(row.bars[index], label, format, of("allocatable"), of("requested"), of("used"), of("predicted_peak"));
  }
  row.why.textContent = node.reason;
  row.button.title = node.reported ? `${node.report_reason || "Reported"}, ${ago(node.reported, time)}` : "No report yet";
};

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
  row.detail = element("tr", "detail");
  const cell = element("td", "", "Loading");
  cell.colSpan = 3 + AMOUNTS.length;
  row.detail.append(cell);
  row.body.append(row.detail);
  await drawDetail(name, row);
};

const drawDetail = async (name, row) => {
  const cell = row.detail.firstChild;
  try {
    const answer = await answered(`api/v1/nodes/${encodeURIComponent(name)}`);
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
  const takenBack = withdrawals.map(each => `cpu ${percentage(each.cpu_percent_per_day)}, memory ` +
    `${percentage(each.memory_percent_per_day)} (over ${lasting(each.window_seconds)})`);
  if (takenBack.length) said.push(element("p", "written", `Taken back a day, of what is lent: ${takenBack.join("; ")}.`));
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

const drawFleet = ({ rates, prior, refused_nodes }) => {
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

const drawNodes = (nodes, time) => {
  const wanted = byId("filter").value.trim().toLowerCase();
  const matching = nodes.filter(node => `${node.name} ${node.reason}`.toLowerCase().includes(wanted));
  const visible = matching.slice(0, MAX_ROWS);
  const names = new Set(visible.map(node => node.name));
  for (const [name, row] of rows) {
    if (!names.has(name)) { row.body.remove(); rows.delete(name); }
  }
  const table = byId("nodes");
  let before = table.tHead;
  for (const node of visible) {
    if (!rows.has(node.name)) rows.set(node.name, makeRow(node));
    const row = rows.get(node.name);
    drawRow(row, node, time);
    if (row.detail) drawDetail(node.name, row);
    if (before.nextSibling !== row.body) before.after(row.body); // moved only when needed: a moved row loses the focus
    before = row.body;
  }
  table.hidden = !visible.length;
  byId("count").textContent = visible.length < nodes.length ? `${visible.length} of ${nodes.length} nodes` : `${nodes.length} nodes`;
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
    lastGood = { status, nodes, time, fleet, at: clock() };
    draw();
    if (first && rows.has(linked)) toggle(linked);
    const newest = nodes.map(node => node.reported).filter(Boolean).sort().at(-1);
    byId("freshness").textContent = `as of ${lastGood.at}${newest ? `, newest report ${ago(newest, time)}` : ""}`;
  } catch (error) {
    show([["bad", `The manager does not answer (${error.message}). ` +
      (lastGood ? `Below is what it said at ${lastGood.at}.` : "Trying again.")]]);
  }
  setTimeout(refresh, REFRESH_MILLISECONDS);
};

const draw = () => {
  drawNotices(lastGood.status, lastGood.nodes, lastGood.fleet);
  drawFleet(lastGood.fleet);
  drawTotals(lastGood.nodes);
  drawNodes(lastGood.nodes, lastGood.time);
};

byId("filter").addEventListener("input", () => lastGood && draw());
refresh();
