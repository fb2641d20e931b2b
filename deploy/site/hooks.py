"""The site generator's hooks: pages of the repository's root, pages made from the code, and the index as a script."""

import json
import re
from pathlib import Path

from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files
from properdocs.structure.nav import Navigation, Section
from properdocs.structure.pages import Page

from deploy.site import ROOT, reference

_OF_ROOT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
_ROOTS = "|".join(re.escape(name) for name in _OF_ROOT)
_FOUND_LAST = ("Reference", "Project")  # sections of the navigation that list everything, or are for maintainers
_FOUND_LAST_BOOST = 0.2
_last_pages: set[str] = set()
_FROM_DOCS = re.compile(rf"(\]\((?:\.\./)*)\.\./({_ROOTS})")  # the root is one folder above docs/, and the site's top


def on_files(files: Files, /, *, config: ProperDocsConfig) -> Files:
    """Adds them."""
    for name in _OF_ROOT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace('="docs/', '="')
        files.append(File.generated(config, name, content=text))
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_nav(nav: Navigation, /, *, config: ProperDocsConfig, files: Files) -> Navigation:
    """Notes which pages the search shows after the users' pages."""
    sections = [each for each in nav.items if isinstance(each, Section) and each.title in _FOUND_LAST]
    _last_pages.update(page.url for section in sections for page in section.children if isinstance(page, Page))
    return nav


def on_page_markdown(markdown: str, /, *, page: Page, config: ProperDocsConfig, files: Files) -> str:
    """Links from docs/ to files of the root lead to their pages."""
    return _FROM_DOCS.sub(r"\1\2", markdown)


def on_post_build(*, config: ProperDocsConfig) -> None:
    """Writes the search's index as a script, which a page may load from a folder, too, in place of the plugin's own."""
    search = Path(config.site_dir, "search")
    documents = json.loads((search / "search_index.json").read_text(encoding="utf-8"))["docs"]
    for each in documents:
        each["boost"] = _FOUND_LAST_BOOST if each["location"].partition("#")[0] in _last_pages else 1
    (search / "search_index.js").write_text(f"const searchDocuments = {json.dumps(documents)};\n", encoding="utf-8")
    for name in ("search_index.json", "main.js", "worker.js"):
        (search / name).unlink()
