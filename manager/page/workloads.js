"use strict";
// The table of workloads. The manager sorts, filters and pages it, since a cluster can have more than a page should hold.
// Uses the helpers of page.js and nodes.js.

const WORKLOADS_MILLISECONDS = 15000; // the manager counts anew every ten seconds, and agents report by the minute

const amountColumns = (label, key, kind) => ["requested", "used"].map(of => ({
  id: `${key === "cpu_milli" ? "cpu" : "memory"}_${of}`, title: `${label} ${of}, ${UNITS[key]}`, kind: `number ${kind}`.trim(),
  isNumber: true, value: row => inUnit(row[of] ? row[of][key] / SCALES[key] : null),
}));
const AMOUNT_COLUMNS = [...amountColumns("CPU", "cpu_milli", ""), ...amountColumns("Memory", "memory_bytes", "tablet")];
const WORKLOAD_COLUMNS = [
  { id: "workload", title: "Workload", kind: "node" },
  { id: "tier", title: "Tier", kind: "tablet", value: row => row.tiers.join(", ") },
  { id: "pods", title: "Pods", kind: "number tablet", isNumber: true, value: row => String(row.pods) },
  { id: "nodes", title: "Nodes", kind: "number tablet", isNumber: true, value: row => String(row.nodes) },
  ...AMOUNT_COLUMNS,
];

const listing = { order: "workload", descending: false, page: 0, turn: 0 };
const workloadRows = new Map(); // path of a visible workload -> {body, line, button, cells, detail}

const workloadsPath = ({ order, descending, page }, text) =>
  `api/v1/workloads?${new URLSearchParams({ text, order, descending, offset: page * PAGE_SIZE, limit: PAGE_SIZE })}`;

const pathOf = ({ namespace, kind, name }) => `api/v1/workloads/${[namespace, kind, name].map(encodeURIComponent).join("/")}`;

// A sum over some of the pods stands beside requests of all of them, so it says so.
const partlyMeasured = ({ pods, measured_pods }) => measured_pods && measured_pods < pods ? `of ${measured_pods} of ${pods} pods` : "";

const showNode = name => {
  byId("filter").value = name;
  byId("filter").dispatchEvent(new Event("input"));
  byId("nodes-title").scrollIntoView();
  byId("filter").focus({ preventScroll: true });
};

const podLine = pod => {
  const line = element("tr"), name = element("td", "wide", pod.name), node = element("button", "whole", pod.node);
  node.type = "button";
  node.title = "Show this node";
  node.addEventListener("click", () => showNode(pod.node));
  const where = element("span", "tag", `${pod.tier}, on `);
  where.append(node);
  name.append(where);
  line.append(name, ...AMOUNT_COLUMNS.map(column => element("td", column.kind, column.value(pod))));
  return line;
};

const drawPods = async (path, row) => {
  const { cell } = row.detail;
  try {
    const { pods, total } = await answered(path);
    if (!row.detail) return;
    const table = element("table", "pods"), body = element("tbody");
    lined(table, ["Pod", ...AMOUNT_COLUMNS.map(column => column.title)], []);
    AMOUNT_COLUMNS.forEach((column, place) => { table.tHead.rows[0].cells[place + 1].className = column.kind; });
    body.append(...pods.map(podLine));
    table.append(body);
    cell.replaceChildren(table);
    if (pods.length < total) cell.append(element("p", "written", `These ${pods.length} of ${total} pods use most CPU.`));
  } catch (error) {
    cell.textContent = `No pods: ${error.message}`;
  }
};

const togglePods = path => {
  const row = workloadRows.get(path), isOpen = row.detail === null;
  row.button.setAttribute("aria-expanded", String(isOpen));
  if (!isOpen) {
    row.detail.line.remove();
    row.detail = null;
    return;
  }
  const line = element("tr", "detail"), whole = element("td"), cell = element("div", "told", "Loading");
  whole.colSpan = WORKLOAD_COLUMNS.length;
  whole.append(cell);
  line.append(whole);
  row.body.append(line);
  row.detail = { line, cell };
  drawPods(path, row);
};

const makeWorkloadRow = workload => {
  const path = pathOf(workload), { body, line, button } = openingRow(`${workload.namespace}/${workload.name}`, () => togglePods(path));
  const row = { body, button, cells: {}, detail: null, tag: element("span", "tag") };
  for (const { id, kind } of WORKLOAD_COLUMNS) {
    const cell = element("td", kind);
    if (id === "workload") cell.append(button, row.tag);
    else row.cells[id] = cell;
    line.append(cell);
  }
  return row;
};

const drawWorkloadRow = (row, workload) => {
  row.tag.replaceChildren(workload.kind, element("span", "phone", `, ${workload.tiers.join(", ")}, ${workload.pods} ${workload.pods === 1 ? "pod" : "pods"}`));
  for (const { id, value } of WORKLOAD_COLUMNS) if (value) row.cells[id].textContent = value(workload);
  const partly = partlyMeasured(workload);
  if (partly) for (const id of ["cpu_used", "memory_used"]) row.cells[id].append(element("span", "tag", partly));
};

const drawWorkloads = ({ total, matching, workloads }) => {
  const table = byId("workloads"), focused = document.activeElement, paths = new Set(workloads.map(pathOf));
  if (!table.tHead) {
    table.createTHead().insertRow().append(...WORKLOAD_COLUMNS.map(column => sortHead(column, () => {
      listing.descending = listing.order === column.id ? !listing.descending : Boolean(column.isNumber);
      Object.assign(listing, { order: column.id, page: 0 });
      loadWorkloads();
    })));
  }
  markSorted(table, WORKLOAD_COLUMNS, listing.order, listing.descending);
  for (const [path, row] of workloadRows) {
    if (!paths.has(path)) { row.body.remove(); workloadRows.delete(path); }
  }
  let before = table.tHead;
  for (const workload of workloads) {
    const path = pathOf(workload);
    if (!workloadRows.has(path)) workloadRows.set(path, makeWorkloadRow(workload));
    const row = workloadRows.get(path);
    drawWorkloadRow(row, workload);
    if (row.detail) drawPods(path, row);
    if (before.nextSibling !== row.body) before.after(row.body);
    before = row.body;
  }
  table.hidden = !workloads.length;
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
  const pages = Math.max(1, Math.ceil(matching / PAGE_SIZE));
  drawPager("workloads-", { page: listing.page, pages, first: listing.page * PAGE_SIZE, shown: workloads.length }, [matching, total, "workloads with pods on nodes"]);
};

const loadWorkloads = async () => {
  const turn = listing.turn += 1;
  try {
    const answer = await answered(workloadsPath(listing, byId("workloads-filter").value));
    if (turn !== listing.turn) return; // a later question is on its way
    if (listing.page && !answer.workloads.length) {
      listing.page = Math.max(0, Math.ceil(answer.matching / PAGE_SIZE) - 1);
      loadWorkloads();
    } else drawWorkloads(answer);
  } catch (error) {
    if (turn === listing.turn) byId("workloads-count").textContent = `No answer: ${error.message}`;
  }
};

const startWorkloads = () => {
  byId("workloads-filter").addEventListener("input", () => { listing.page = 0; loadWorkloads(); });
  for (const [id, step] of [["workloads-previous", -1], ["workloads-next", 1]]) {
    byId(id).addEventListener("click", () => { listing.page += step; loadWorkloads(); });
  }
  loadWorkloads();
  setInterval(loadWorkloads, WORKLOADS_MILLISECONDS);
};
