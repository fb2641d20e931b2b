"use strict";
// Nodes that the cloud has announced to take, and nodes that others replace; each part is shown where there are any.
// Uses helpers of page.js and autoscaler.js.

const TAKES_WITHIN_MINUTES = /^(SpotInterruption|InstanceTermination)/;

const drawDisruption = of => {
  const { nodes, replacement } = of || { nodes: [], replacement: "" };
  const interrupted = nodes.filter(row => row.interruption), judged = nodes.filter(row => row.replacement);
  const saving = row => row.replacement_saves_per_month;
  const atMost = row => row.replacement_saves_at_most || false;
  judged.sort((one, other) => atMost(one) - atMost(other) || (saving(other) || 0) - (saving(one) || 0));
  byId("interrupted-part").hidden = !interrupted.length;
  drawTable("interrupted", [
    ["Node", "wide", named],
    ["Group", "", "group"],
    ["Announced", "wide", row => TAKES_WITHIN_MINUTES.test(row.interruption) ? element("span", "bad-text", row.interruption) : row.interruption],
    ["Its pods", "", row => TAKES_WITHIN_MINUTES.test(row.interruption) ? "count as pending now" : "keep running"],
    ["Standing", "", "standing"],
    ["Why", "reasons", row => because(row)],
  ], interrupted.slice(0, MAX_CLASSES));
  byId("replaced-part").hidden = !judged.length && !replacement;
  byId("replacement").textContent = replacement || "None is replaced now.";
  drawTable("replaced", [
    ["Node", "wide", named],
    ["Group", "", "group"],
    ["Reason", "", "replacement_reason"],
    ["Saves a month", "number", row => saving(row) === null ? "" : `${atMost(row) ? "≤ " : ""}${money(saving(row), [row.group])}`],
    ["Verdict", "reasons", "replacement"],
  ], judged.slice(0, MAX_CLASSES), row => / is replaced: /.test(row.replacement) ? "chosen" : "");
};
