"use strict";
// How often Prod and the system of a node use how much, and where the promised peak lies. Uses course.js.

const BARS = 12; // of a histogram of samples
const LABEL_WIDTH = 30; // pixels that a mark's name needs
const MARKS = { percentile: "percentiles 50, 95, 98 and 99", predicted_peak: "promised peak" };

// Bars and marks in cores or GiB; `most` is how much of the time is spent up to a bar's end, in percent.
const histogramOf = ({ resource, bounds, shares, percentiles, peak }) => {
  const scale = resource === "cpu" ? SCALES.cpu_milli : SCALES.memory_bytes;
  let sum = 0;
  const bars = shares.map((share, place) => {
    sum += share;
    return { from: bounds[place] / scale, to: bounds[place + 1] / scale, percent: share / 100, most: Math.min(100, sum / 100) };
  });
  return { bars, marks: Object.entries(percentiles).map(([p, value]) => [`p${p}`, value / scale]), peak: peak === null ? null : peak / scale };
};

// The same of samples that weigh alike; null without any.
const histogramOfSamples = (values, peak) => {
  const known = values.filter(value => value !== null).sort((one, other) => one - other);
  if (!known.length) return null;
  const least = known[0], step = (known.at(-1) - least) / BARS || known.at(-1) / BARS || 1;
  let most = 0;
  const bars = Array.from({ length: BARS }, (_, place) => {
    const from = least + place * step, to = from + step, before = most;
    most = place === BARS - 1 ? 100 : Math.round(10000 * known.filter(value => value < to).length / known.length) / 100; // as it is shown
    return { from, to, percent: most - before, most };
  });
  return { bars, marks: [50, 95, 100].map(p => [`p${p}`, known[Math.ceil(p * known.length / 100) - 1]]), peak };
};

const distanceOf = ({ marks, peak }, unit, called = MARKS.predicted_peak) => {
  const said = marks.map(([name, value]) => `${name} ${inUnit(value)}`).join(", ");
  if (peak === null) return `${said} ${unit}; no ${called} is known`;
  const [name, value] = marks.at(-1), from = Number(inUnit(value)), distance = Number(inUnit(peak)) - from; // of what is shown
  const share = from ? ` (${percentText(100 * Math.abs(distance) / from)})` : "";
  const place = distance ? `${inUnit(Math.abs(distance))}${share} ${distance < 0 ? "below" : "above"} ${name}` : `at ${name}`;
  return `${said} ${unit}; the ${called} of ${inUnit(peak)} is ${place}`;
};

const percentText = percent => percent > 0 && percent < 0.01 ? "< 0.01 %" : `${percent.toFixed(2)} %`;

// The places of the marks whose names have room, the peak's first, then from the right.
const namedMarks = (places, width) => places.reduce((kept, x) =>
  kept.every(each => Math.abs(each - x) >= width) ? [...kept, x] : kept, []);

const makeHistogram = (title, unit, { predicted_peak: called } = MARKS) => {
  const root = element("figure", "plot"), svg = drawn("svg", { role: "img", tabindex: "0" }), readout = element("p", "readout");
  const { behind, refresh } = tableBehind(() => {
    const { bars, marks, peak } = shown;
    const lines = bars.map(bar => ["", `${inUnit(bar.from)} to ${inUnit(bar.to)}`, percentText(bar.percent), percentText(bar.most)]);
    const of = marks.map(([name, value]) => ["", inUnit(value), name, `${name.slice(1)} %`]);
    return [[`Used, ${unit}`, " Of the time", " At most that"], [...lines, ...of, ...peak === null ? [] : [["", inUnit(peak), called, "–"]]]];
  });
  root.append(element("figcaption", "", `${title}, ${unit}`), svg, readout, behind);
  let shown = null, pointed = null, box = null;
  const xOf = value => rounded(PLOT.left + box.width * value / box.top);

  const point = () => {
    svg.querySelectorAll(".bar").forEach((bar, place) => bar.setAttribute("class", place === pointed ? "bar pointed" : "bar"));
    const bar = shown.bars[pointed];
    readout.textContent = bar
      ? `${inUnit(bar.from)} to ${inUnit(bar.to)} ${unit}: ${percentText(bar.percent)} of the time; at most ${inUnit(bar.to)}: ${percentText(bar.most)}`
      : `${distanceOf(shown, unit, called)}.`;
    svg.setAttribute("aria-label", `${title}, ${unit}. ${readout.textContent}`);
  };

  const draw = histogram => {
    shown = histogram;
    const { bars, marks, peak } = shown, width = root.clientWidth || 400, foot = PLOT.height - PLOT.bottom;
    const highest = Math.max(...bars.map(bar => bar.percent)), ground = foot - PLOT.top - 12; // 12: the names of the marks
    box = { width: width - PLOT.left - PLOT.right, top: 1.05 * Math.max(bars.at(-1).to, peak || 0) || 1 };
    const parts = ticksOf(highest).flatMap(tick => {
      const y = rounded(foot - ground * tick / highest);
      return [drawn("path", { class: "grid", d: `M${PLOT.left} ${y}H${width - PLOT.right}` }),
        drawn("text", { x: PLOT.left - 6, y: y + 4, "text-anchor": "end" }, `${tick} %`)];
    });
    for (const tick of ticksOf(box.top)) parts.push(drawn("text", { x: xOf(tick), y: foot + 14, "text-anchor": "middle" }, String(tick)));
    for (const { from, to, percent } of bars) {
      const height = percent ? Math.max(1, ground * percent / highest) : 0; // what was rare is seen, too
      parts.push(drawn("rect", { class: "bar", x: xOf(from), y: rounded(foot - height), width: Math.max(1, rounded(xOf(to) - xOf(from) - 1)), height: rounded(height) }));
    }
    const all = [...peak === null ? [] : [["predicted_peak", "peak", peak]], ...marks.map(([name, value]) => ["percentile", name, value]).reverse()];
    const named = namedMarks(all.map(([, , value]) => xOf(value)), LABEL_WIDTH);
    for (const [kind, name, value] of all) {
      const x = xOf(value), place = named.indexOf(x);
      parts.push(drawn("path", { class: `line ${kind}`, d: `M${x} ${PLOT.top + 10}V${foot}` }));
      if (place >= 0) parts.push(drawn("text", { x, y: PLOT.top + 6, "text-anchor": "middle" }, name));
      if (place >= 0) named[place] = NaN;
    }
    svg.setAttribute("viewBox", `0 0 ${width} ${PLOT.height}`);
    svg.replaceChildren(...parts);
    if (pointed !== null) pointed = Math.min(pointed, bars.length - 1);
    point();
    refresh();
  };

  const leave = () => { pointed = null; readout.removeAttribute("aria-live"); if (shown) point(); };
  svg.addEventListener("pointermove", event => {
    if (!shown) return;
    const value = (event.clientX - svg.getBoundingClientRect().left - PLOT.left) / box.width * box.top;
    const place = shown.bars.findIndex(bar => value >= bar.from && value < bar.to);
    pointed = place < 0 ? null : place;
    point();
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !shown) return;
    event.preventDefault();
    readout.setAttribute("aria-live", "polite");
    const last = shown.bars.length - 1, from = pointed === null ? (step > 0 ? -1 : last + 1) : pointed;
    pointed = Math.min(last, Math.max(0, from + step));
    point();
  });
  return { root, draw };
};

// Both resources of a node; asked for when the node is opened, and with each report while it is.
const makeHistograms = name => {
  const root = element("div", "truth"), grid = element("div", "plots"), said = element("p", "quiet");
  const plots = { cpu: makeHistogram("How often Prod and the system use how much CPU", UNITS.cpu_milli), memory: makeHistogram("How often Prod and the system use how much memory", UNITS.memory_bytes) };
  grid.append(...Object.values(plots).map(plot => plot.root));
  root.append(grid, legend(MARKS), said);
  root.hidden = true;
  let asked; // the report that was asked for last
  const draw = async reported => {
    if (reported === asked) return;
    asked = reported;
    try {
      const { model, histograms, problem } = await answered(`api/v1/nodes/${encodeURIComponent(name)}/histograms`);
      root.hidden = !histograms.length && !problem;
      grid.hidden = root.children[1].hidden = !histograms.length;
      said.textContent = problem ? `Left out: ${problem}` : `What Prod and the system used in each training step; older steps weigh less. The promised peak is ${model}'s.`;
      for (const each of histograms) plots[each.resource].draw(histogramOf(each));
    } catch (error) {
      root.hidden = false;
      said.textContent = `No histograms: ${error.message}`;
    }
  };
  return { root, draw };
};
