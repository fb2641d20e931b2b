"use strict";
// What the cluster costs over time, and when something was done about it. Uses course.js.

const COSTS = { total: "cost", idle: "requested by no pod", offered: "offered, not requested", avoided: "used as Mid and Batch" };
const LANES = { grew: "Scaled up", shrank: "Scaled down", came: "Nodes", failed: "Failed" };
const QUIET = new Set(["taken back", "backoff ended", "delayed"]);
const LANE = { height: 24, left: 92, right: 10, top: 6, bottom: 18 };

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const dollars = value => value === null ? "unknown"
  : `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: Math.abs(value) < 1 ? 4 : 2 })}`;

// A sum that rests on a price which is only estimated, by the size of the machine, is marked as `headroom plan` marks it.
let estimatedGroups = new Set();
const about = groups => groups.some(group => estimatedGroups.has(group)) ? "~" : "";
const money = (value, groups) => `${value === null ? "" : about(groups)}${dollars(value)}`;

// [label, sum, what it is] for each part of what the cluster costs now.
const costTiles = ({ total, idle, offered, used, unpriced, estimated }) => {
  const whole = [unpriced ? `without ${counted(unpriced, "node")} without a price` : "all nodes",
    ...(estimated ? [`${counted(estimated, "node")} estimated by size`] : [])].join(", ");
  const sumOf = value => value === null ? "unknown" : `${estimated ? "~" : ""}${dollars(value)}/h`;
  return [["Cost", sumOf(total), whole], ["Idle", sumOf(idle), "requested by no pod"],
    ["Offered", sumOf(offered), "reclaimed, and requested by no pod yet"], ["Used", sumOf(used), "requested as Mid and Batch"]];
};

const makeCosts = () => ({ times: [], interval: 0, values: Object.fromEntries(Object.keys(COSTS).map(kind => [kind, []])) });

// Drops every other sample where there are too many, so that all of the time stays.
const rememberCost = (costs, time, { total, idle, offered, used }) => {
  const { times, values } = costs;
  if (times.length && time <= times.at(-1)) return;
  if (times.length === MAX_SAMPLES) {
    const half = list => list.splice(0, list.length, ...list.filter((_, sample) => sample % 2 === 0));
    [times, ...Object.values(values)].forEach(half);
    costs.interval = 0.9 * (times.at(-1) - times[0]) / (times.length - 1);
  }
  const isEarly = times.length > 1 && times.at(-1) - times.at(-2) < costs.interval;
  const sample = isEarly ? times.length - 1 : times.length;
  times[sample] = time;
  for (const [kind, value] of Object.entries({ total, idle, offered, avoided: used })) values[kind][sample] = value;
};

// Begins with what the manager remembers.
const rememberCosts = (costs, { times, ...parts }) => times.forEach((time, sample) =>
  rememberCost(costs, Date.parse(time), Object.fromEntries(Object.entries(parts).map(([kind, values]) => [kind, values[sample]]))));

// What was done, as {time, lane, text}, the oldest first; marks that nothing comes of yet are none of it.
const eventsOf = (iterations, told) => iterations.flatMap(past => {
  const time = Date.parse(past.time);
  const acts = past.decisions.filter(act => !told.isSoft(act)).map(act => ({
    time, text: told.did(act), lane: act.error ? "failed" : /increase|create|untaint/.test(act.what) ? "grew" : "shrank",
  }));
  const incidents = past.incidents.filter(each => !QUIET.has(each.what)).map(each => ({ time, text: told.happened(each), lane: each.what === "registered" ? "came" : "failed" }));
  const gone = past.leaving.filter(each => each.stage === "gone").map(each => ({ time, text: `${each.node} of ${each.group} was deleted`, lane: "came" }));
  return [...acts, ...incidents, ...gone];
}).sort((one, other) => one.time - other.time);

// One lane for each kind, the newest at the right; the list of what was done says the same in words.
const drawTimeline = (svg, events, width, now) => {
  const from = Math.min(events[0].time, now - LEAST_SPAN), right = width - LANE.right, kinds = Object.keys(LANES);
  const height = LANE.top + kinds.length * LANE.height + LANE.bottom, foot = height - 4;
  const x = time => rounded(LANE.left + (right - LANE.left) * (time - from) / (now - from || 1));
  const middle = lane => LANE.top + (kinds.indexOf(lane) + 0.5) * LANE.height;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const count = kinds.map(kind => `${LANES[kind]}: ${events.filter(each => each.lane === kind).length}`).join(", ");
  svg.setAttribute("aria-label", `What was done over time. ${count}. The table below has each in words.`);
  svg.replaceChildren(...kinds.flatMap(kind => [
    drawn("path", { class: "grid", d: `M${LANE.left} ${middle(kind)}H${right}` }),
    drawn("text", { x: 0, y: middle(kind) + 4 }, LANES[kind]),
  ]), ...events.map(({ time, lane, text }) => {
    const mark = drawn("circle", { class: `mark ${lane}`, cx: x(time), cy: middle(lane), r: 5 });
    mark.append(drawn("title", {}, `${moment(time)}: ${text}`));
    return mark;
  }), drawn("text", { x: LANE.left, y: foot }, moment(from)),
  drawn("text", { x: right, y: foot, "text-anchor": "end" }, moment(now)));
};
