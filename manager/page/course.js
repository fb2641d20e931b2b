"use strict";
// The course of amounts over the last day, and how it is drawn: as a sparkline, and as a plot with a crosshair.

const MAX_SAMPLES = 240;
const LEAST_SPAN = 60000; // milliseconds that a plot covers at least
const PLOTTED = ["used", "requested", "predicted_peak", "mid"];
const TOTAL = ""; // the cluster's name among the nodes' in the course
const COURSES = [...PLOTTED, "prod_used"];
const HORIZON = 86400; // seconds that a promise is for, where its model says nothing else
const SCALES = { cpu_milli: 1000, memory_bytes: 2 ** 30 }; // of a core, and of a GiB
const UNITS = { cpu_milli: "cores", memory_bytes: "GiB" };
const LABELS = { used: "used", requested: "requested", predicted_peak: "predicted peak", mid: "Mid on offer", allocatable: "allocatable" };
const NODE_LABELS = { ...LABELS, predicted_peak: "promised peak", prod_used: "used by Prod and the system", broken: "above a promise" };

// Up to `remembered` (milliseconds) it comes from the manager's memory, from then on from what the page has seen.
// `begun` are the nodes whose memory was asked for.
const makeCourse = () => ({ times: [], interval: 0, remembered: -Infinity, byName: new Map(), begun: new Set() });

const slotOf = (amount, key, sample) =>
  (2 * COURSES.indexOf(amount) + (key === "cpu_milli" ? 0 : 1)) * MAX_SAMPLES + sample;

// Drops every other sample, so that the course stays whole and what it holds stays bounded.
const thinned = course => {
  const kept = Math.ceil(course.times.length / 2);
  course.times = course.times.filter((_, sample) => sample % 2 === 0);
  course.interval = 0.9 * (course.times[kept - 1] - course.times[0]) / (kept - 1); // polls are not exactly on time
  for (const values of course.byName.values()) {
    for (let start = 0; start < values.length; start += MAX_SAMPLES) {
      for (let sample = 0; sample < kept; sample += 1) values[start + sample] = values[start + 2 * sample];
      values.fill(NaN, start + kept, start + MAX_SAMPLES);
    }
  }
};

const put = (values, sample, node) => {
  for (const amount of COURSES) {
    for (const key of Object.keys(SCALES)) values[slotOf(amount, key, sample)] = node[amount] ? node[amount][key] / SCALES[key] : NaN;
  }
};

// `rows` are [name, node] as the manager answered at `time` (milliseconds); null where it did not, which leaves a gap.
const record = (course, time, rows) => {
  if (course.times.length === MAX_SAMPLES) thinned(course);
  const count = course.times.length;
  const isSame = count > 0 && time <= course.times[count - 1];
  const isEarly = count > 1 && course.times[count - 1] - course.times[count - 2] < course.interval;
  const sample = isSame || isEarly ? count - 1 : count; // the newest replaces one that is too near to the one before
  course.times[sample] = isSame ? course.times[sample] : time;
  const gone = new Set(course.byName.keys());
  for (const [name, node] of rows || []) {
    gone.delete(name);
    if (!course.byName.has(name)) course.byName.set(name, new Float32Array(2 * COURSES.length * MAX_SAMPLES).fill(NaN));
    put(course.byName.get(name), sample, node);
  }
  for (const name of gone) {
    if (rows) [course.byName, course.begun].forEach(each => each.delete(name));
    else put(course.byName.get(name), sample, {});
  }
};

const amountsAt = (history, sample) => Object.fromEntries(COURSES.map(amount => {
  const { cpu_milli, memory_bytes } = history[amount] || { cpu_milli: [] };
  return [amount, (cpu_milli[sample] ?? null) === null ? null : { cpu_milli: cpu_milli[sample], memory_bytes: memory_bytes[sample] }];
}));

const nearestSample = (times, time) => times.reduce((best, each, sample) =>
  Math.abs(each - time) < Math.abs(times[best] - time) ? sample : best, 0);

// Begins the course with what the manager remembers.
const recordHistory = (course, name, history) => {
  history.times.forEach((time, sample) => record(course, Date.parse(time), [[name, amountsAt(history, sample)]]));
  if (course.times.length) course.remembered = course.times.at(-1);
};

// The same of one more node, at the times that the course has.
const fillHistory = (course, name, history) => {
  const values = course.byName.get(name), times = history.times.map(time => Date.parse(time));
  if (!values || !times.length) return;
  course.times.forEach((time, sample) => {
    if (time <= course.remembered) put(values, sample, amountsAt(history, nearestSample(times, time)));
  });
};

// One amount over the course's times, in cores or GiB; null where it was not known.
const courseOf = (course, name, amount, key) => {
  const values = course.byName.get(name);
  return course.times.map((_, sample) => {
    const value = values ? values[slotOf(amount, key, sample)] : NaN;
    return Number.isNaN(value) ? null : value;
  });
};

// What was used where that is more than a peak that had been promised before, for a time that was not over; else null.
const brokenOf = (times, used, promised, horizon) => used.map((value, sample) => {
  const running = promised.filter((peak, made) => made < sample && peak !== null && times[sample] - times[made] <= 1000 * horizon);
  return value !== null && running.length && value > Math.min(...running) ? value : null;
});

// Sums over those that know it.
const totalOf = nodes => Object.fromEntries([...COURSES, "allocatable"].map(amount => {
  const known = nodes.map(node => node[amount]).filter(Boolean);
  const total = key => known.reduce((before, each) => before + each[key], 0);
  return [amount, known.length ? { cpu_milli: total("cpu_milli"), memory_bytes: total("memory_bytes") } : null];
}));

const rounded = value => Number(value.toFixed(1));

// Runs of [x, y] without a gap; `top` is at y = 0.
const runsOf = (times, values, { from, to, top, width, height }) => {
  const runs = [];
  values.forEach((value, sample) => {
    if (value === null) return;
    if (!sample || values[sample - 1] === null) runs.push([]);
    const x = width * (times[sample] - from) / (to - from), y = height * (1 - Math.min(1, value / top));
    runs.at(-1).push([rounded(x), rounded(y)]);
  });
  return runs;
};

// A sample on its own is a dot: a line of no length with round ends.
const linePath = (times, values, box) => runsOf(times, values, box)
  .map(run => `M${run.map(point => point.join(" ")).join("L")}${run.length === 1 ? "h0" : ""}`).join("");

const areaPath = (times, values, box) => runsOf(times, values, box)
  .map(run => `M${run[0][0]} ${box.height}L${run.map(point => point.join(" ")).join("L")}V${box.height}Z`).join("");

const spanOf = times => ({ from: Math.min(times[0], times.at(-1) - LEAST_SPAN), to: times.at(-1) });

// Round numbers from 0 up to `top`, at most five.
const ticksOf = top => {
  const power = 10 ** Math.floor(Math.log10(top / 4));
  const step = power * [1, 2, 2.5, 5, 10].find(each => each * power * 4 >= top);
  return [0, 1, 2, 3, 4].map(each => Number((each * step).toPrecision(6))).filter(each => each <= top);
};

// Of a day, in one piece.
const moment = time => new Date(time).toLocaleTimeString().replaceAll(" ", "\u00a0");
const trimmed = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits });
const percentage = value => value === null ? "unknown" : `${trimmed(value, 2)} %`;
const inUnit = value => value === null ? "–" : value < 10 ? value.toFixed(2) : value < 1000 ? value.toFixed(1) : trimmed(value, 0);
const lasting = seconds => seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${trimmed(seconds / 60, 1)} min` :
  seconds < 172800 ? `${trimmed(seconds / 3600, 1)} h` : `${trimmed(seconds / 86400, 1)} days`;

// How a total has changed since it was first known; nothing before that is ten minutes ago.
const trendOf = (course, amount) => {
  if (!COURSES.includes(amount)) return "";
  const [cores, gib] = Object.keys(SCALES).map(key => courseOf(course, TOTAL, amount, key));
  const first = cores.findIndex(value => value !== null), seconds = Math.round((course.times.at(-1) - course.times[first]) / 1000);
  const change = values => (values.at(-1) - values[first]).toLocaleString("en", { maximumFractionDigits: 1, signDisplay: "exceptZero" });
  return seconds >= 600 && cores.at(-1) !== null ? `${change(cores)} cores, ${change(gib)} GiB ${`in ${lasting(seconds)}`.replaceAll(" ", "\u00a0")}` : "";
};

const drawn = (tag, attributes = {}, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
};

const SPARK = { width: 72, height: 24 };

const makeSpark = () => {
  const svg = drawn("svg", { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, role: "img" });
  const paths = ["area", "line used", "line predicted_peak"].map(kind => svg.appendChild(drawn("path", { class: kind })));
  return { svg, paths };
};

// Usage against what is allocatable, which is the full height.
const drawSpark = ({ svg, paths }, course, name, key, allocatable) => {
  const used = courseOf(course, name, "used", key), peak = courseOf(course, name, "predicted_peak", key);
  const box = { ...spanOf(course.times), ...SPARK, top: allocatable || Math.max(...used, ...peak) || 1 };
  [areaPath(course.times, used, box), linePath(course.times, used, box), linePath(course.times, peak, box)]
    .forEach((path, place) => paths[place].setAttribute("d", path));
  svg.setAttribute("aria-label", `used ${inUnit(used.at(-1))} of ${inUnit(allocatable)} ${UNITS[key]}`);
};

const PLOT = { height: 130, left: 46, right: 8, top: 8, bottom: 18 };

const legend = labels => {
  const list = element("ul", "legend");
  for (const [kind, label] of Object.entries(labels)) {
    const item = element("li"), key = drawn("svg", { class: "key", viewBox: "0 0 20 8", "aria-hidden": "true" });
    key.append(drawn("path", { class: `line ${kind}`, d: "M1 4H19" }));
    item.append(key, label);
    list.append(item);
  }
  return list;
};

// The samples of a zoomed span; all of them where it holds less than two. A span is {from, to} in milliseconds.
const samplesIn = (times, span) => {
  const inside = span ? times.map((_, sample) => sample).filter(sample => times[sample] >= span.from && times[sample] <= span.to) : [];
  return inside.length > 1 ? [inside[0], inside.at(-1) + 1] : [0, times.length];
};

// A span of `factor` times the length around a time in it, and null where that is all there is.
const zoomedSpan = ({ from, to }, factor, around, all) => {
  const start = Math.max(all.from, around - (around - from) * factor), end = Math.min(all.to, around + (to - around) * factor);
  return start <= all.from && end >= all.to ? null : { from: start, to: end };
};

// What a plot shows, in words: `told` makes [heads, lines] of it, when the table is open. `refresh` is to follow each drawing.
const tableBehind = told => {
  const behind = element("details"), scroll = element("div", "samples"), table = element("table");
  const refresh = () => {
    if (!behind.open) return;
    table.replaceChildren();
    lined(table, ...told());
  };
  behind.append(element("summary", "", "As a table"), scroll);
  scroll.append(table);
  behind.addEventListener("toggle", refresh);
  return { behind, refresh };
};

// Amounts in one unit over time, each line of a kind. `draw` redraws them in place, so that the crosshair, the zoom, the
// focus and an open table stay.
const makePlot = (title, unit, labels) => {
  const root = element("figure", "plot"), caption = element("figcaption", "", `${title}, ${unit}`);
  const svg = drawn("svg", { role: "img", tabindex: "0" }), readout = element("p", "readout");
  const whole = element("button", "whole", "Show all");
  whole.type = "button";
  whole.hidden = true;
  caption.append(" ", whole);
  let all = { times: [], lines: [] }, times = [], lines = [], pointed = null, box = null; // as last drawn; `pointed`: the time under the crosshair
  let zoom = null, dragged = null; // spans, and null for none

  const xOf = time => PLOT.left + box.width * (time - box.from) / (box.to - box.from);
  const timeAt = event => {
    const share = (event.clientX - svg.getBoundingClientRect().left - PLOT.left) / box.width;
    return box.from + (box.to - box.from) * Math.min(1, Math.max(0, share));
  };

  const point = () => {
    svg.querySelector(".crosshair")?.remove();
    const sample = pointed === null ? times.length - 1 : nearestSample(times, pointed);
    const said = lines.map(([kind, values]) => `${labels[kind]} ${inUnit(values[sample])}`).join(", ");
    readout.textContent = `${moment(times[sample])}: ${said}`;
    svg.setAttribute("aria-label", `${title} over time, ${unit}. ${readout.textContent}`);
    if (pointed === null) return;
    const x = xOf(times[sample]), cross = drawn("g", { class: "crosshair" });
    if (dragged) {
      const [left, right] = [xOf(dragged.from), xOf(dragged.to)].sort((one, other) => one - other);
      cross.append(drawn("rect", { x: left, y: PLOT.top, width: right - left, height: box.height }));
    }
    cross.append(drawn("path", { d: `M${rounded(x)} ${PLOT.top}v${box.height}` }));
    for (const [kind, values] of lines) {
      if (values[sample] === null) continue;
      cross.append(drawn("circle", { class: kind, cx: x, cy: PLOT.top + box.height * (1 - values[sample] / box.top), r: 3 }));
    }
    svg.append(cross);
  };

  const { behind, refresh } = tableBehind(() => [["Time", ...lines.map(([kind]) => ` ${labels[kind]}, ${unit}`)], times.map((time, sample) =>
    ["", moment(time), ...lines.map(([, values]) => inUnit(values[sample]))]).reverse()]);
  root.append(caption, svg, readout, behind);

  // `given` are {times, lines}, lines being [kind, values]; the first one is drawn as an area, too.
  const draw = given => {
    all = given;
    const [first, end] = samplesIn(all.times, zoom);
    if (end - first === all.times.length) zoom = null;
    times = all.times.slice(first, end);
    lines = all.lines.map(([kind, values]) => [kind, values.slice(first, end)]);
    whole.hidden = !zoom;
    const width = root.clientWidth || 400;
    const top = 1.05 * Math.max(...lines.flatMap(([, values]) => values)) || 1;
    box = { ...(zoom ? { from: times[0], to: times.at(-1) } : spanOf(times)), top, width: width - PLOT.left - PLOT.right, height: PLOT.height - PLOT.top - PLOT.bottom };
    const plane = drawn("g", { transform: `translate(${PLOT.left} ${PLOT.top})` });
    for (const tick of ticksOf(top)) {
      const y = rounded(box.height * (1 - tick / top));
      plane.append(drawn("path", { class: "grid", d: `M0 ${y}H${box.width}` }),
        drawn("text", { x: -6, y: y + 4, "text-anchor": "end" }, trimmed(tick, 6)));
    }
    for (const [time, anchor, x] of [[box.from, "start", 0], [box.to, "end", box.width]]) {
      plane.append(drawn("text", { x, y: box.height + 14, "text-anchor": anchor }, moment(time)));
    }
    plane.append(drawn("path", { class: "area", d: areaPath(times, lines[0][1], box) }));
    for (const [kind, values] of lines) plane.append(drawn("path", { class: `line ${kind}`, d: linePath(times, values, box) }));
    svg.setAttribute("viewBox", `0 0 ${width} ${PLOT.height}`);
    svg.replaceChildren(plane);
    point();
    refresh();
  };

  const zoomTo = span => { zoom = span; dragged = null; draw(all); };
  const leave = () => { pointed = dragged = null; readout.removeAttribute("aria-live"); point(); };
  svg.addEventListener("pointerdown", event => {
    if (event.button) return;
    dragged = { from: timeAt(event), to: timeAt(event) };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    pointed = timeAt(event);
    if (dragged) dragged.to = pointed;
    point();
  });
  svg.addEventListener("pointerup", () => {
    if (!dragged) return;
    const [from, to] = [dragged.from, dragged.to].sort((one, other) => one - other);
    dragged = null;
    const [first, end] = samplesIn(times, { from, to });
    if (to > from && end - first < times.length) zoomTo({ from, to });
    else point();
  });
  svg.addEventListener("pointercancel", leave);
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("dblclick", () => zoomTo(null));
  whole.addEventListener("click", () => { zoomTo(null); svg.focus(); });
  svg.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], factor = { "+": 0.5, "=": 0.5, "-": 2, Escape: Infinity, 0: Infinity }[event.key];
    if (!step && !factor) return;
    event.preventDefault();
    readout.setAttribute("aria-live", "polite");
    const last = times.length - 1;
    const from = pointed === null ? last : nearestSample(times, pointed);
    pointed = times[Math.min(last, Math.max(0, from + (step || 0)))];
    if (factor) zoomTo(factor === Infinity ? null : zoomedSpan(box, factor, pointed, spanOf(all.times)));
    else point();
  });
  return { root, draw };
};

const plotsOfBoth = (title, labels) => {
  const root = element("div"), grid = element("div", "plots");
  const plots = [["cpu_milli", "CPU"], ["memory_bytes", "Memory"]].map(([key, label]) => [key, makePlot(`${title}${label}`, UNITS[key], labels), UNITS[key]]);
  grid.append(...plots.map(([, plot]) => plot.root));
  root.append(grid, legend(labels));
  return { root, plots };
};

const makePlots = (title, course, name, labels = LABELS) => {
  const { root, plots } = plotsOfBoth(title, labels);
  const draw = (allocatable, more = () => []) => plots.forEach(([key, plot]) => {
    const most = allocatable ? allocatable[key] / SCALES[key] : null;
    const lines = PLOTTED.map(amount => [amount, courseOf(course, name, amount, key)]);
    plot.draw({ times: [...course.times], lines: [...lines, ["allocatable", course.times.map(() => most)], ...more(key)] });
  });
  return { root, draw };
};

// What of a course of promises can be said of its samples, and of these alone.
const keptSentence = (broken, samples, isPromised, since) => {
  const found = !isPromised ? `No peak was promised since ${since}`
    : broken ? `In ${broken} of ${samples} samples since ${since} more was used than a promise that still ran`
    : `In none of ${samples} samples since ${since} was more used than a promise that still ran`;
  return `${found}. A sample is the mean of one report, which hides short bursts; the table of promises counts every outcome.`;
};

// A node's promises, and what became of them, in one picture with what it lends.
const makeNodePlots = (course, name) => {
  const { root, draw } = makePlots("", course, name, NODE_LABELS), said = element("p", "quiet");
  root.append(said);
  return { root, draw: (allocatable, horizon) => {
    let worst = 0, isPromised = false;
    draw(allocatable, key => {
      const used = courseOf(course, name, "prod_used", key), promised = courseOf(course, name, "predicted_peak", key);
      const broken = brokenOf(course.times, used, promised, horizon);
      worst = Math.max(worst, broken.filter(value => value !== null).length);
      isPromised ||= promised.some(value => value !== null);
      return [["prod_used", used], ["broken", broken]];
    });
    said.textContent = keptSentence(worst, course.times.length, isPromised, new Date(course.times[0]).toLocaleString());
  } };
};
