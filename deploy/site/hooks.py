"""The site generator's hooks: add pages of the repository's root, and pages made from the code."""

import re

from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files
from properdocs.structure.pages import Page

from deploy.site import reference
from deploy.site.source import ROOT

_OF_ROOT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
_ROOTS = "|".join(re.escape(name) for name in _OF_ROOT)
_FROM_DOCS = re.compile(rf"(\]\((?:\.\./)*)\.\./({_ROOTS})")  # the root is one folder above docs/, and the site's top


def on_files(files: Files, /, *, config: ProperDocsConfig) -> Files:
    """Adds them."""
    for name in _OF_ROOT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace('src="docs/', 'src="')
        files.append(File.generated(config, name, content=text))
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: ProperDocsConfig, files: Files) -> str:
    """Links from docs/ to files of the root lead to their pages."""
    return _FROM_DOCS.sub(r"\1\2", markdown)
