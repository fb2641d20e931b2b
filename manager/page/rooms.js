"use strict";
// The rooms of the page. Each has a path behind the hash and loads only what it shows: "#/nodes", "#/nodes/a-node" with
// that node open, "#/nodes?web" with that filter. "#a-node" opens a node, too.

// What of a table is shown: the start of its elements' ids, what is turned to, and what shows it.
const TABLES = { nodes: ["", view, redraw], workloads: ["workloads-", listing, wake] };
const ROOMS = {
  overview: { load: loadOverview, pause: REFRESH_MILLISECONDS },
  nodes: { load: loadNodesRoom, pause: REFRESH_MILLISECONDS },
  workloads: { load: loadWorkloads, pause: WORKLOADS_MILLISECONDS },
  prediction: { load: loadPrediction, pause: REFRESH_MILLISECONDS },
  autoscaler: { load: loadAutoscaler, pause: REFRESH_MILLISECONDS },
  cost: { load: loadCost, pause: REFRESH_MILLISECONDS },
};

const plain = text => { try { return decodeURIComponent(text); } catch { return ""; } };

const placeOf = hash => {
  if (hash.length > 1 && hash[1] !== "/") return { room: "nodes", detail: plain(hash.slice(1)), filter: "" };
  const [, room, detail, filter] = /^#\/(\w*)\/?([^?]*)\??(.*)$/.exec(hash) || ["", "", "", ""];
  return { room: Object.hasOwn(ROOMS, room) ? room : "overview", detail: plain(detail), filter: plain(filter) };
};

const enter = () => {
  Object.assign(place, placeOf(location.hash));
  known.missing = "";
  document.querySelectorAll("[data-room]").forEach(each => { each.hidden = each.dataset.room !== place.room; });
  for (const link of byId("rooms").children) {
    if (placeOf(link.hash).room === place.room) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (TABLES[place.room]) {
    const [of, shownNow] = TABLES[place.room];
    byId(`${of}filter`).value = place.filter;
    shownNow.page = 0;
  }
  wake();
};

// After what is shown for the first time, or was hidden, all of what the manager remembers is loaded.
const watch = async () => {
  for (let before = "", wasHidden = true; ;) {
    const { room } = place, hasMissed = wasHidden || room !== before, of = ROOMS[room];
    before = room;
    try {
      known.status = await answered("api/v1/status");
      await of.load(hasMissed);
      of.at = clock();
      drawNotices(known.status, room === "overview" || room === "prediction" ? known.fleet.alarms : []);
      byId("freshness").textContent = `as of ${of.at}${room === "overview" || room === "nodes" ? newestReport(known) : ""}`;
    } catch (error) {
      if (course.times.length) record(course, course.times.at(-1) + REFRESH_MILLISECONDS, null);
      show([["bad", `The manager does not answer (${error.message}). ` + (of.at ? `Below is what it said at ${of.at}.` : "Trying again.")]]);
    }
    wasHidden = await nextTurn(of.pause);
  }
};

// The density of rows is a taste of the reader's, so that the browser keeps it where it may.
const dense = isCompact => {
  document.body.classList.toggle("compact", isCompact);
  byId("density").setAttribute("aria-pressed", String(isCompact));
};
byId("density").addEventListener("click", () => {
  dense(!document.body.classList.contains("compact"));
  try { localStorage.setItem("density", document.body.className); } catch { /* it lasts as long as the page does */ }
});
try { dense(localStorage.getItem("density") === "compact"); } catch { dense(false); }

// All of the open room is printed: every node, and what is folded except for the numbers behind a plot.
let unfolded = [];
const print = isPrinted => {
  view.isPrinted = isPrinted;
  if (isPrinted) unfolded = [...document.querySelectorAll("details:not([open], .plot details)")];
  unfolded.forEach(each => { each.open = isPrinted; });
  if (place.room === "nodes") redraw();
};
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));

for (const [of, shownNow, turn] of Object.values(TABLES)) {
  byId(`${of}filter`).addEventListener("input", () => { shownNow.page = 0; turn(); });
  for (const [id, step] of [["previous", -1], ["next", 1]]) byId(of + id).addEventListener("click", () => { shownNow.page += step; turn(); });
}
addEventListener("hashchange", enter);
enter();
watch();
