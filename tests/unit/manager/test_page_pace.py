"""How often an open page asks, and that a hidden one does not. Node.js runs the script on a clock of its own."""

import json
import subprocess
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.manager.test_page import NODE_JS, PAGE, needs_node_js

BYTES_PER_SECOND = 5000.0
HOUR = 3600

# Two loops ask as those of the page do, while an hour passes, in which the page is hidden from `hides` to `shows`.
PROGRAM = """
const timers = [], seen = [], listeners = [];
let now = 0;
Date.now = () => now;
globalThis.setTimeout = (done, milliseconds) => { timers.push([now + milliseconds, done]); };
globalThis.document = {
  get hidden() { return now >= 1000 * hides && now < 1000 * shows; },
  addEventListener: (_, done) => { listeners.push(done); },
};
globalThis.fetch = async path => {
  seen.push({ path, at: now / 1000, bytes: sizes[path] });
  return { headers: new Map([["content-length", String(sizes[path])]]) };
};
const watch = async (path, least) => {
  for (let wasHidden = true; ;) {
    await asked(wasHidden ? `${path} anew` : path);
    wasHidden = await nextTurn(least);
  }
};
const settled = () => new Promise(done => { setImmediate(done); });
const live = async seconds => {
  for (const path of Object.keys(sizes).filter(each => !each.endsWith("anew"))) watch(path, 3000);
  timers.push([1000 * shows, () => { listeners.splice(0).forEach(done => done()); }]);
  for (await settled(); now < 1000 * seconds; await settled()) {
    timers.sort(([one], [other]) => one - other);
    const [due, done] = timers.shift();
    now = Math.max(now, due);
    done();
  }
  console.log(JSON.stringify(seen));
};
live(3600);
"""


def requests(sizes: dict[str, int], hides: int = HOUR, shows: int = HOUR) -> list[dict[str, Any]]:
    """What the page asks in an hour: path, seconds since it was opened, bytes of the answer."""
    given = f"const sizes = {json.dumps(sizes)}, hides = {hides}, shows = {shows};\n"
    assert NODE_JS is not None
    done = subprocess.run(
        [NODE_JS, "-"],
        input=(PAGE / "pace.js").read_text() + given + PROGRAM,
        capture_output=True,
        text=True,
        check=True,
    )
    return [dict(each) for each in json.loads(done.stdout)]


def sizes(nodes: int) -> dict[str, int]:
    """As the manager compresses them: 120 bytes a node, if no two nodes are alike."""
    return {"nodes": 120 * nodes, "groups": 9000, "nodes anew": 240 * nodes, "groups anew": 9000}


@needs_node_js
@pytest.mark.parametrize("nodes", [3, 300, 2000])
def test_an_open_page_receives_a_bounded_number_of_bytes_a_second(nodes: int) -> None:
    seen = requests(sizes(nodes))
    assert sum(each["bytes"] for each in seen) / HOUR < BYTES_PER_SECOND
    times = [each["at"] for each in seen if each["path"] == "nodes"]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert max(pauses) <= 60
    assert nodes > 3 or max(pauses) < 5


@needs_node_js
def test_a_hidden_page_asks_nothing_and_begins_anew_when_it_is_shown() -> None:
    seen = requests(sizes(300), hides=600, shows=3000)
    assert [each for each in seen if 600 < each["at"] < 3000] == []
    assert [each["path"] for each in seen if each["at"] == 3000] == ["nodes anew", "groups anew"]


@needs_node_js
def test_an_answer_that_has_not_changed_is_shown_again_without_being_sent_again() -> None:
    program = """
    globalThis.document = { hidden: false };
    const seen = [];
    let tag = "one";
    globalThis.fetch = async (path, { headers }) => {
      const known = headers["If-None-Match"] === tag;
      seen.push(known);
      return new Response(known ? null : `${path} ${tag}`, { status: known ? 304 : 200, headers: { etag: tag } });
    };
    (async () => {
      const told = [await (await asked("a")).text(), await (await asked("a")).text()];
      tag = "two";
      told.push(await (await asked("a")).text());
      for (let path = 0; path < 30; path += 1) await asked(`${path}`);
      console.log(JSON.stringify([told, seen.slice(0, 3), answers.size, answers.has("a")]));
    })();
    """
    assert NODE_JS is not None
    script = (PAGE / "pace.js").read_text() + program
    done = subprocess.run([NODE_JS, "-"], input=script, capture_output=True, text=True, check=True, timeout=60)
    told, known, kept, has_oldest = json.loads(done.stdout)
    assert (told, known) == (["a one", "a one", "a two"], [False, True, False])
    assert (kept, has_oldest) == (20, False)


@needs_node_js
def test_a_room_that_is_entered_does_not_wait_for_its_turn() -> None:
    program = """
    globalThis.document = { hidden: false };
    (async () => {
      const turn = nextTurn(3600000);
      wake();
      const during = await turn;
      wake();
      console.log(JSON.stringify([during, await nextTurn(3600000), isDue]));
      process.exit();
    })();
    """
    assert NODE_JS is not None
    script = (PAGE / "pace.js").read_text() + program
    done = subprocess.run([NODE_JS, "-"], input=script, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [False, False, False]
