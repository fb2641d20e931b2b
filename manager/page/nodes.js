"use strict";
// The table of nodes: its columns, and what is shown of it by sorting, filtering and paging. Uses the helpers of page.js.

const PAGE_SIZE = 50;
const MOST_PRINTED = 1000; // nodes
const CHANGE_WORTH_TELLING = 0.05; // of what the node shows
const WITHHELD = new Set(["disabled", "stale", "unreadable", "failed"]);
const BOUND_WORDS = { "reclaimable": "peak", "reclaimable - buffer": "peak", "reclaimable_limit": "requests", "disabled": "off" };

const directionOf = ({ wanted, mid }) => {
  const change = wanted.cpu_milli - mid.cpu_milli;
  return Math.abs(change) <= CHANGE_WORTH_TELLING * mid.cpu_milli ? "" : change > 0 ? " ↑" : " ↓";
};

// In a word what decides Mid, and where it is going; as in the terminal's table.
const shortWhy = node => {
  const { bound, wanted, history_percent: learned } = node;
  if (!bound) return "undecided";
  if (node.prod_slowed?.length && !WITHHELD.has(bound.cpu)) return "Prod slowed";
  if (bound.cpu === "stale" && !node.reported) return "no report yet";
  if (typeof learned === "number" && learned < 100 && !WITHHELD.has(bound.cpu) && !(wanted && wanted.cpu_milli)) return `learning ${learned} %`;
  const words = [bound.cpu, bound.memory].map(each => each.replace(" - prod_slowed_lately", "")).map(each => BOUND_WORDS[each] || each.replaceAll("_", " "));
  return [...new Set(words)].join("/") + (wanted ? directionOf(node) : "");
};

const A_LOOK = "needs a look"; // finds these nodes, as a filter
const needsLook = ({ bound }) => !bound || [bound.cpu, bound.memory].some(each => WITHHELD.has(each) && each !== "disabled");

// In the middle of a long name stands what many names share.
const shortName = name => name.length > 27 ? `${name.slice(0, 16)}…${name.slice(-8)}` : name;

const nodePath = name => `#/nodes/${encodeURIComponent(name)}`;

// Empty where the sum of Mid is within the sum of what is reclaimable.
const whyMoreMid = nodes => {
  const isMore = key => nodes.reduce((more, node) => more + node.mid[key] - (node.reclaimable ? node.reclaimable[key] : 0), 0) > 0;
  if (!Object.keys(SCALES).some(isMore)) return "";
  const lendsMore = nodes.some(({ bound }) => bound && [bound.cpu, bound.memory].some(each => /unallocated|static/.test(each)));
  return "Above reclaimable: a Node shows no small changes, and never less than its pods request" +
    (lendsMore ? ". The policy also lends more than what is reclaimable" : "");
};

const valueOf = (node, amount, key) => node[amount] ? node[amount][key] / SCALES[key] : null;

// `from` is the least page that has room for it: empty for a phone, "tablet" or "desk".
const resourceColumns = (title, key) => {
  const amount = (of, label, from) => ({
    id: `${of}-${key}`, title: `${title} ${label}, ${UNITS[key]}`, kind: ["number", from, OFFERED.has(of) ? "offered" : ""].filter(Boolean).join(" "),
    isNumber: true, value: node => valueOf(node, of, key),
  });
  const share = node => node.used && node.allocatable && node.allocatable[key] ? node.used[key] / node.allocatable[key] : null;
  return [
    { id: `share-${key}`, title: `${title} over time`, kind: "tablet", isNumber: true, value: share, spark: key },
    amount("used", "used", "tablet"), amount("predicted_peak", "peak", "tablet"), amount("requested", "requested", "tablet"),
    amount("allocatable", "allocatable", "desk"), amount("mid", "Mid", ""), amount("batch", "Batch", "desk"),
  ];
};

const OFFERED = new Set(["mid", "batch"]);
const COLUMNS = [
  { id: "name", title: "Node", kind: "node", value: node => node.name },
  ...resourceColumns("CPU", "cpu_milli"),
  ...resourceColumns("Memory", "memory_bytes"),
  { id: "why", title: "Why", kind: "why", value: shortWhy },
];

const collator = new Intl.Collator("en", { numeric: true });

// By one column, then by name; what is not known comes last, whichever way.
const sortedNodes = (nodes, id, isDescending) => {
  const { value } = COLUMNS.find(column => column.id === id);
  const way = isDescending ? -1 : 1;
  const compared = (one, other) => typeof one === "number" ? one - other : collator.compare(one, other);
  return nodes.map(node => [value(node), node]).sort(([one, a], [other, b]) => {
    if ((one === null) !== (other === null)) return one === null ? 1 : -1;
    return (one === null ? 0 : way * compared(one, other)) || collator.compare(a.name, b.name);
  }).map(([, node]) => node);
};

const filteredNodes = (nodes, text) => {
  const wanted = text.trim().toLowerCase();
  return nodes.filter(node => `${node.name} ${node.reason} ${shortWhy(node)} ${needsLook(node) ? A_LOOK : ""}`.toLowerCase().includes(wanted));
};

// The page asked for, or the last one there is.
const pageOf = (nodes, wanted, size = PAGE_SIZE) => {
  const pages = Math.max(1, Math.ceil(nodes.length / size));
  const page = Math.max(0, Math.min(wanted, pages - 1));
  return { page, pages, first: page * size, nodes: nodes.slice(page * size, (page + 1) * size) };
};

const view = { sort: "name", isDescending: false, page: 0, isPrinted: false };
const rows = new Map(); // name of a visible node -> {body, line, button, cells, detail}

const sortHead = (column, chosen) => {
  const head = element("th", column.kind), button = element("button", "sort", column.title);
  head.scope = "col";
  button.type = "button";
  if (column.spark) button.title = "Used, with the predicted peak dotted; the full height is allocatable. Sorts by the share used.";
  button.addEventListener("click", chosen);
  head.append(button);
  return head;
};

const markSorted = (table, columns, sort, isDescending) => columns.forEach((column, place) => {
  const way = sort !== column.id ? "none" : isDescending ? "descending" : "ascending";
  table.tHead.rows[0].cells[place].setAttribute("aria-sort", way);
});

const makeHeads = table => table.createTHead().insertRow().append(...COLUMNS.map(column => sortHead(column, () => {
  view.isDescending = view.sort === column.id ? !view.isDescending : Boolean(column.isNumber);
  Object.assign(view, { sort: column.id, page: 0 });
  redraw();
})));

// A row that opens wherever it is clicked, and by its button.
const openingRow = (name, opened) => {
  const body = element("tbody"), line = element("tr", "node-row"), button = element("button", "name", shortName(name));
  button.type = "button";
  if (button.textContent !== name) button.ariaLabel = name;
  button.setAttribute("aria-expanded", "false");
  line.addEventListener("click", event => { // a click of the keyboard has no detail, the end of a selection has one
    if (!event.detail || !String(getSelection())) opened();
  });
  body.append(line);
  return { body, line, button };
};

const makeRow = node => {
  const { body, line, button } = openingRow(node.name, () => toggle(node.name));
  const row = { body, line, button, cells: [], detail: null };
  for (const column of COLUMNS) {
    const cell = element("td", column.kind);
    if (column.spark) cell.append((row.cells[column.id] = makeSpark()).svg);
    else if (column.id === "name") {
      cell.append(row.button);
      if (node.simulated) cell.append(element("span", "tag", "simulated"));
    } else row.cells[column.id] = cell;
    line.append(cell);
  }
  return row;
};

const drawRow = (row, node, time) => {
  for (const column of COLUMNS) {
    const cell = row.cells[column.id];
    if (column.spark) drawSpark(cell, course, node.name, column.spark, valueOf(node, "allocatable", column.spark));
    else if (cell) cell.textContent = column.isNumber ? inUnit(column.value(node)) : column.value(node).replace("/", "/\u200b");
  }
  row.cells.why.title = node.reason;
  row.button.title = `${node.name}\n${node.reported ? `${node.report_reason || "Reported"}, ${ago(node.reported, time)}` : "No report yet"}`;
};

const drawPager = (of, { page, pages, first, shown }, [matching, all, what]) => {
  const count = `${pages > 1 ? `${first + 1} to ${first + shown} of ` : ""}${matching}` +
    `${matching < all ? ` matching, of ${all}` : ""} ${what}`;
  if (byId(`${of}count`).textContent !== count) byId(`${of}count`).textContent = count; // else it would be read out at every poll
  byId(`${of}pager`).hidden = pages === 1;
  byId(`${of}previous`).disabled = page === 0;
  byId(`${of}next`).disabled = page === pages - 1;
};

// One request for the plots of a page of the table; of an open row all is known.
const beginSparks = async nodes => {
  const names = nodes.map(node => node.name).filter(name => !course.begun.has(name));
  if (!names.length || !course.times.length) return;
  names.forEach(name => course.begun.add(name));
  await remembered(`history/nodes?${new URLSearchParams(names.map(name => ["name", name]))}`, past => {
    for (const [name, series] of Object.entries(past.nodes)) {
      if (!rows.get(name)?.detail) fillHistory(course, name, { times: past.times, ...series });
    }
    redraw();
  });
};

const drawNodes = (all, time) => {
  const table = byId("nodes"), focused = document.activeElement;
  if (!table.tHead) makeHeads(table);
  markSorted(table, COLUMNS, view.sort, view.isDescending);
  const matching = sortedNodes(filteredNodes(all, byId("filter").value), view.sort, view.isDescending);
  const shownNow = view.isPrinted ? pageOf(matching, 0, MOST_PRINTED) : pageOf(matching, view.page);
  if (!view.isPrinted) view.page = shownNow.page;
  const names = new Set(shownNow.nodes.map(node => node.name));
  for (const [name, row] of rows) {
    if (!names.has(name)) { row.body.remove(); rows.delete(name); }
  }
  let before = table.tHead;
  for (const node of shownNow.nodes) {
    if (!rows.has(node.name)) rows.set(node.name, makeRow(node));
    const row = rows.get(node.name);
    drawRow(row, node, time);
    if (row.detail) drawDetail(node, row);
    if (before.nextSibling !== row.body) before.after(row.body);
    before = row.body;
  }
  table.hidden = !shownNow.nodes.length;
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus(); // a moved row loses the focus
  if (!view.isPrinted) beginSparks(shownNow.nodes);
  drawPager("", { ...shownNow, shown: shownNow.nodes.length }, [matching.length, all.length, "nodes"]);
};

// Turns to the page that has the node; the link to a node is the page's hash.
const turnTo = (all, name) => {
  const place = sortedNodes(filteredNodes(all, byId("filter").value), view.sort, view.isDescending).findIndex(node => node.name === name);
  if (place >= 0) view.page = Math.floor(place / PAGE_SIZE);
};
