"use strict";
// The overview: in one line whether all is well, each part of it a link to the room that says why. Uses page.js.

const HOURS_A_MONTH = 730;
const MOST_LOOKS = 8; // on the overview; the room of the nodes has all
const LEAST_OUTCOMES = 1000; // fewer prove little, because broken promises come in runs

const lentPart = nodes => {
  const sum = (some, of) => some.reduce((before, node) => before + of(node), 0) / SCALES.cpu_milli;
  const tier = sum(nodes, node => node.mid.cpu_milli) ? "mid" : "batch", measured = nodes.filter(node => node.used && node.allocatable);
  const idle = sum(measured, ({ used, allocatable }) => Math.max(0, allocatable.cpu_milli - used.cpu_milli));
  const some = measured.length < nodes.length ? ` on ${measured.length} of ${nodes.length} nodes` : "";
  return [`${trimmed(sum(nodes, node => node[tier].cpu_milli), 0)} cores lent` + (measured.length ? ` of ${trimmed(idle, 0)} idle${some}` : ""), "#/nodes"];
};

// Nothing where no node has a price.
const worthPart = cost => cost?.total
  ? [[`worth ${cost.estimated ? "~" : ""}$${trimmed((cost.offered + cost.used) * HOURS_A_MONTH, 0)} a month`, "#/cost"]] : [];

const promisePart = rates => {
  const judged = rates.filter(rate => rate.outcomes >= LEAST_OUTCOMES), ratio = rate => rate.violation_percent / rate.target_violation_percent;
  const worst = judged.reduce((one, other) => ratio(other) > ratio(one) ? other : one, judged[0]);
  const most = Math.max(0, ...rates.map(rate => rate.outcomes));
  return !worst ? [`promise not judged yet (${trimmed(most, 0)} of ${trimmed(LEAST_OUTCOMES, 0)} outcomes)`, "#/prediction"]
    : [`promise ${worst.missed ? "missed" : "kept"} (${percentage(worst.violation_percent)} of ${percentage(worst.target_violation_percent)})`,
      "#/prediction", worst.missed ? "bad-text" : ""];
};

// Of the worst node; a day's objective is 0.1 %.
const slowedPart = nodes => {
  const minutes = nodes.map(node => node.prod_slowed_minutes_per_day).filter(Number.isFinite), most = Math.max(...minutes);
  return [minutes.length ? `Prod slowed ${most ? "up to " : ""}${trimmed(most, 1)} min a day` : "whether Prod is slowed is not measured",
    "#/nodes", most > 1.44 ? "bad-text" : ""];
};

const lookPart = nodes => {
  const count = nodes.filter(needsLook).length;
  return count ? [`${count === 1 ? "1 node needs" : `${trimmed(count, 0)} nodes need`} a look`, `#/nodes?${encodeURIComponent(A_LOOK)}`, "warn-text"]
    : ["no node needs a look", "#/nodes"];
};

// [text, link, class name] of each part; what is not known is left out, or said to be unknown.
const headlineOf = (nodes, rates, cost) => [lentPart(nodes), ...worthPart(cost), promisePart(rates), slowedPart(nodes), lookPart(nodes)];

const drawHeadline = ({ nodes, fleet, groups }) => renew(byId("headline"), ...headlineOf(nodes, fleet.rates, groups?.cost_per_hour).map(([text, where, kind = ""]) => {
    const part = element("li"), link = element("a", kind, text);
    link.href = where;
    part.append(link);
    return part;
  }));

const loadOverview = async hasMissed => {
  await Promise.all([loadNodes(hasMissed), loadFleet(), loadGroups()]);
  drawHeadline(known);
  drawTotals(known.nodes);
  drawCourse(known.total);
  drawList("looks", known.nodes.filter(needsLook).map(({ name, reason }) => [named({ node: name }), `: ${reason}`]), MOST_LOOKS);
};
