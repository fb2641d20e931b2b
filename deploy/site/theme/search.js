"use strict";
// The index comes as scripts, which a page may load from a folder (file://) as well as from a server, where it may neither
// fetch nor start a worker. It is loaded when the search is first used.

const MOST_FOUND = 20;
const SUMMARY_LENGTH = 200;
const [query, found] = ["search-query", "search-results"].map(id => document.getElementById(id));

const loaded = file => new Promise((done, failed) => {
  const script = document.createElement("script");
  script.src = `${base_url}/search/${file}`;
  script.onload = done;
  script.onerror = () => failed(new Error(`search/${file} cannot be loaded`));
  document.head.append(script);
});

let index = null; // the promise of {lunr's index, documents by location}

const loadIndex = async () => {
  await loaded("lunr.js");
  await loaded("search_index.js");
  const byLocation = new Map(searchDocuments.map(each => [each.location, each]));
  const words = lunr(function () {
    this.ref("location");
    this.field("title", { boost: 10 });
    this.field("text");
    searchDocuments.forEach(each => this.add(each, { boost: each.boost }));
  });
  return { words, byLocation };
};

// Every word has to be there, except those that the index omits ("is", "not"); the last one may be incomplete.
const search = ({ words, byLocation }, text) => {
  const typed = lunr.tokenizer(text).map(String), last = typed.length - 1;
  const tokens = typed.filter((token, place) => place === last || lunr.stopWordFilter(token));
  const places = tokens.map((token, place) => words.query(asked => {
    asked.term(token, { boost: 10 });
    if (place === tokens.length - 1) asked.term(token, { usePipeline: false, wildcard: lunr.Query.wildcard.TRAILING });
  }));
  if (!places.length) return [];
  const scores = places.map(found => new Map(found.map(({ ref, score }) => [ref, score])));
  const total = ref => scores.reduce((sum, each) => sum + each.get(ref), 0);
  const inAll = [...scores[0].keys()].filter(ref => scores.every(each => each.has(ref)));
  return inAll.sort((one, other) => total(other) - total(one)).slice(0, MOST_FOUND).map(ref => byLocation.get(ref));
};

const shown = ({ location, title, text }) => {
  const article = document.createElement("article"), head = document.createElement("h3");
  const link = document.createElement("a"), summary = document.createElement("p");
  link.href = `${base_url}/${location}`;
  link.textContent = title;
  summary.textContent = text.slice(0, SUMMARY_LENGTH);
  head.append(link);
  article.append(head, summary);
  return article;
};

const said = text => {
  const line = document.createElement("p");
  line.textContent = text;
  return line;
};

query.addEventListener("input", async () => {
  const text = query.value.trim();
  try {
    if (text.length < 3) return found.replaceChildren();
    index ??= loadIndex();
    const pages = search(await index, text);
    if (text === query.value.trim()) found.replaceChildren(...(pages.length ? pages.map(shown) : [said("Nothing found")]));
  } catch (error) {
    index = null;
    found.replaceChildren(said(`The search does not work: ${error.message}.`));
  }
});
