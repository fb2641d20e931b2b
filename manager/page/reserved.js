"use strict";
// Room that CapacityBuffers keep free and ProvisioningRequests ask for; each part is shown where there are any. Uses
// helpers of page.js and autoscaler.js.

// The options that were taken, each with the terms of its rank.
const boughtFor = (decisions, what) => decisions.flatMap(each => {
  const several = each.comparison && each.comparison.uses_several ? each.comparison.several.nodes : null;
  const rivals = each.options.length > 1 ? `, out of ${each.options.length} options` : "";
  return each.options.filter(row => several ? row.group in several : row.chosen).map(({ group, nodes, pods, rank }) =>
    `${several ? several[group] : nodes} x ${group} for ${counted(pods, what)}` + (rank
      ? `: C ${money(rank.nodes_price, [group])}/h, T ${dollars(rank.pods_price)}/h, rank ${number(rank.rank)}${rivals}` : rivals));
});

const limitsOf = decisions => decisions.flatMap(each =>
  each.caps.map(row => `${row.group} gets ${row.allowed} of ${counted(row.wanted, "node")}: ${row.limit}`));

const sentenceOf = (decisions, what) => {
  const found = [...boughtFor(decisions, what), ...limitsOf(decisions)];
  return found.length ? `${found.join("; ")}.` : "";
};

const reasonsOf = row => row.reasons.map(each => [listed(each.groups.filter(Boolean)), each.reasons.join(", ")].filter(Boolean).join(": ")).join("; ");

const drawReserved = latest => {
  const { buffers, buffer_decisions, requests, request_decisions } =
    latest || { buffers: [], buffer_decisions: [], requests: [], request_decisions: [] };
  byId("buffers-part").hidden = !buffers.length;
  drawTable("buffers", [
    ["CapacityBuffer", "wide", "buffer"],
    ["Each chunk requests", "", row => requested(row.requests)],
    ["Chunks", "number", row => tagged(String(row.chunks), row.limited_by.length && `of ${row.wanted}, by quota ${listed(row.limited_by)}`)],
    ["Fit on nodes", "number", "on_nodes"],
    ["In Mid on offer", "number", "on_mid"],
    ["New node", "number", "triggered"],
    ["None", "number", "unplaced"],
    ["Why none", "reasons", row => row.unplaced ? reasonsOf(row) : ""],
  ], buffers.slice(0, MAX_CLASSES));
  byId("buffers-bought").textContent = sentenceOf(buffer_decisions, "chunk");
  byId("requests-part").hidden = !requests.length;
  drawTable("requests", [
    ["ProvisioningRequest", "wide", row => tagged(row.request, row.provisioning_class.split(".")[0])],
    ["Pods", "number", "pods"],
    ["Created", "number", "consumed"],
    ["State", "", row => ["failed", "revoked"].includes(row.state) ? element("span", "bad-text", row.state) : row.state],
    ["Why", "reasons", row => row.message && row.message !== row.reason ? `${row.reason}: ${row.message}` : row.reason],
  ], requests.slice(0, MAX_CLASSES));
  byId("requests-bought").textContent = sentenceOf(request_decisions, "requested pod");
};
