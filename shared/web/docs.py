"""The API page: it reads `openapi.json` beside it, and needs no network."""

import html


def docs_page(title: str) -> str:
    """A self-contained page that lists the operations of `openapi.json` beside it."""
    return _PAGE.replace("{{title}}", html.escape(title))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{title}} API</title>
<style>
 :root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
 body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
 details { border: 1px solid #8884; border-radius: 6px; margin: .5rem 0; padding: .5rem .8rem }
 summary { cursor: pointer } summary b { display: inline-block; width: 4.5rem; color: #0a7d4f }
 code, pre { font: 13px/1.45 ui-monospace, monospace } pre { overflow: auto; background: #8881; padding: .6rem }
 td { padding: .1rem 1rem .1rem 0; vertical-align: top }
</style></head><body><h1></h1><p id="about"></p><main>Loading openapi.json</main>
<script>
"use strict";
const element = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const resolved = (spec, schema, depth = 0) => {
  if (!schema || depth > 6) return schema;
  if (schema.$ref) return resolved(spec, spec.components.schemas[schema.$ref.split("/").pop()], depth + 1);
  if (schema.anyOf) return schema.anyOf.map(each => resolved(spec, each, depth + 1));
  if (schema.type === "array") return [resolved(spec, schema.items, depth + 1)];
  if (schema.properties) return Object.fromEntries(Object.entries(schema.properties).map(
    ([name, each]) => [name, resolved(spec, each, depth + 1)]));
  return schema.description ? `${schema.type}: ${schema.description}` : schema.type || schema;
};
const operation = (spec, path, method, about) => {
  const node = element("details", "", element("summary", "", element("b", method.toUpperCase()), element("code", path),
    ` ${about.summary || ""}`));
  node.append(element("p", about.description));
  const rows = (about.parameters || []).map(parameter => element("tr", "", element("td", "", element("code",
    parameter.name)), element("td", parameter.in), element("td", parameter.description || "")));
  if (rows.length) node.append(element("table", "", ...rows));
  const asked = Object.values(about.requestBody?.content || {})[0]?.schema;
  if (asked) node.append(element("div", "Body"), element("pre", JSON.stringify(resolved(spec, asked), null, 2)));
  for (const [status, answer] of Object.entries(about.responses || {})) {
    const schema = Object.values(answer.content || {})[0]?.schema;
    node.append(element("div", `${status} ${answer.description}`));
    if (schema) node.append(element("pre", JSON.stringify(resolved(spec, schema), null, 2)));
  }
  if (method === "get" && !path.includes("{")) {
    const link = element("a", "open");
    link.href = path.slice(1);
    node.append(link);
  }
  return node;
};
fetch("openapi.json").then(answer => answer.json()).then(spec => {
  document.querySelector("h1").textContent = `${spec.info.title} ${spec.info.version}`;
  document.querySelector("#about").textContent = spec.info.description || "";
  document.querySelector("main").replaceChildren(...Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => operation(spec, path, method, about))));
}).catch(error => { document.querySelector("main").textContent = `openapi.json: ${error}`; });
</script></body></html>
"""
