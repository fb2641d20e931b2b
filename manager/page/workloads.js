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

const USAGE = { used: "used", requested: "requested", predicted_peak: "predicted peak", broken: "above the request" };
const USAGE_MARKS = { percentile: "median, 95th percentile and most", predicted_peak: "predicted peak" };

const PEAK = "The predicted peak of a pod is what it uses at most in 95 % of the time (memory: 98 %), and a tenth more, unless the policy says otherwise; that of a workload is the sum of its pods'.";

// Null where one of them is not known.
const totalPeak = pods => pods.every(pod => pod.predicted_peak) ? totalOf(pods).predicted_peak : null;

const listing = { order: "workload", descending: false, page: 0 };
const workloadRows = new Map(); // path of a visible workload -> {body, line, button, cells, detail}

const workloadsPath = ({ order, descending, page }, text) =>
  `api/v1/workloads?${new URLSearchParams({ text, order, descending, offset: page * PAGE_SIZE, limit: PAGE_SIZE })}`;

const pathOf = ({ namespace, kind, name }) => `api/v1/workloads/${[namespace, kind, name].map(encodeURIComponent).join("/")}`;

// A sum over some of the pods stands beside requests of all of them, so it says so.
const partlyMeasured = ({ pods, measured_pods }) => measured_pods && measured_pods < pods ? `of ${measured_pods} of ${pods} pods` : "";

// What a workload or a pod used and requested in the last day, and how often how much. `draw` adds its amounts of now.
const makeUsage = (path, pod = "") => {
  const name = pod || decodeURIComponent(path.split("/").at(-1)), { root, plots } = plotsOfBoth(`${name}: `, USAGE), grid = element("div", "plots"), often = legend(USAGE_MARKS);
  const histograms = ["CPU", "memory"].map((label, place) => makeHistogram(`${name}: how often how much ${label} is used`, plots[place][2], USAGE_MARKS));
  grid.append(...histograms.map(each => each.root));
  root.append(grid, often, element("p", "quiet", PEAK));
  const draw = async ({ time, used, requested, predicted_peak }) => {
    let past = { times: [] };
    await remembered(`${path.slice(7)}/history?${new URLSearchParams({ pod })}`, found => { past = found; });
    const times = [...past.times, time].map(each => Date.parse(each));
    grid.hidden = often.hidden = !used && !past.used?.cpu_milli.some(value => value !== null);
    plots.forEach(([key, plot], place) => {
      const course = (amount, now) => [...past[amount]?.[key] ?? [], now ? now[key] : null].map(value => value === null ? null : value / SCALES[key]);
      const uses = course("used", used), requests = course("requested", requested), peak = predicted_peak ? predicted_peak[key] / SCALES[key] : null;
      plot.draw({ times, lines: [["used", uses], ["requested", requests], ["predicted_peak", times.map((_, sample) => requests[sample] === null ? null : peak)],
        ["broken", uses.map((value, sample) => value !== null && requests[sample] && value > requests[sample] ? value : null)]] });
      const histogram = histogramOfSamples(uses, peak);
      if (histogram) histograms[place].draw(histogram);
    });
  };
  return { root, draw };
};

// The row of a pod and its button stay while the table around them is made anew.
const podLine = (path, pod, shown, isAlone) => {
  const line = element("tr"), name = element("td", "wide"), node = named(pod);
  const button = shown.button ||= element("button", "name", pod.name);
  button.type = "button";
  button.disabled = isAlone; // a pod without a controller is what is shown above it
  button.setAttribute("aria-expanded", String(Boolean(shown.usage)));
  button.onclick = () => {
    shown.usage = shown.usage ? null : makeUsage(path, pod.name);
    drawPods(path, workloadRows.get(path));
  };
  name.append(button);
  const where = element("span", "tag", `${pod.tier}, on `);
  where.append(node);
  name.append(where);
  line.append(name, ...AMOUNT_COLUMNS.map(column => element("td", column.kind, column.value(pod))));
  if (!shown.usage) return [line];
  const detail = element("tr", "detail"), cell = element("td");
  cell.colSpan = 1 + AMOUNT_COLUMNS.length;
  cell.append(shown.usage.root);
  detail.append(cell);
  return [line, detail];
};

const drawPods = async (path, row) => {
  const { cell, usage, shown } = row.detail;
  try {
    const { pods, total, time } = await answered(path), focused = document.activeElement;
    if (!row.detail) return;
    const table = element("table", "pods"), body = element("tbody");
    lined(table, ["Pod", ...AMOUNT_COLUMNS.map(column => column.title)], []);
    AMOUNT_COLUMNS.forEach((column, place) => { table.tHead.rows[0].cells[place + 1].className = column.kind; });
    for (const { name } of pods) if (!shown.has(name)) shown.set(name, { button: null, usage: null });
    body.append(...pods.flatMap(pod => podLine(path, pod, shown.get(pod.name), row.amounts.kind === "Pod" && total === 1)));
    table.append(body);
    cell.replaceChildren(table);
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
    usage.draw({ ...row.amounts, time, predicted_peak: pods.length === total ? totalPeak(pods) : null });
    for (const pod of pods) shown.get(pod.name).usage?.draw({ ...pod, time });
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
  const usage = makeUsage(path);
  whole.append(usage.root, cell);
  line.append(whole);
  row.body.append(line);
  row.detail = { line, cell, usage, shown: new Map() }; // shown: name of a pod -> {button, usage}
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
  row.amounts = workload;
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
      wake();
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
  const answer = await answered(workloadsPath(listing, byId("workloads-filter").value));
  if (listing.page && !answer.workloads.length) {
    listing.page = Math.max(0, Math.ceil(answer.matching / PAGE_SIZE) - 1);
    wake();
  } else drawWorkloads(answer);
};
