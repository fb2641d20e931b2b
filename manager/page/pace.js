"use strict";
// How often the page asks: a large cluster less often, and nothing while the page is hidden.

const LONGEST_PAUSE_MILLISECONDS = 60000;
const BYTES_PER_SECOND = 4000; // that a page receives on average

const MOST_ANSWERS = 20; // that are kept, to be shown again where the manager says that nothing has changed

let paidUntil = 0; // when what the page has received is within its bytes per second
const answers = new Map(); // the tag and the text of the last answer, by path

const asked = async path => {
  const before = answers.get(path), headers = before ? { "If-None-Match": before.tag } : {};
  const response = await fetch(path, { cache: "no-store", headers }), tag = response.headers.get("etag");
  const milliseconds = 1000 * Number(response.headers.get("content-length")) / BYTES_PER_SECOND; // as sent, compressed
  paidUntil = Math.max(paidUntil, Date.now()) + milliseconds;
  if (before && response.status === 304) return new Response(before.text);
  if (!response.ok || !tag) return response;
  const text = await response.text();
  answers.delete(path);
  answers.set(path, { tag, text });
  if (answers.size > MOST_ANSWERS) answers.delete(answers.keys().next().value);
  return new Response(text);
};

let isDue = false, ring = () => {};
// Ends the wait for the next turn: something else is to be shown.
const wake = () => { isDue = true; ring(); };

// Waits until it is time to ask again, and while the page is hidden; true if it was.
const nextTurn = async least => {
  if (!isDue) await new Promise(done => { ring = done; setTimeout(done, Math.min(LONGEST_PAUSE_MILLISECONDS, Math.max(least, paidUntil - Date.now()))); });
  isDue = false;
  const wasHidden = document.hidden;
  while (document.hidden) await new Promise(done => { document.addEventListener("visibilitychange", done, { once: true }); });
  return wasHidden;
};
