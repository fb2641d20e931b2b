"""The control plane of nodes with kernels of their own, as processes of this machine.

`python -m tests.node.control_plane LAYOUT` runs it in the network namespace that it is started in.
"""

import sys
from pathlib import Path

from tests.node import programs
from tests.node.init import Programs
from tests.node.layout import Layout

if __name__ == "__main__":
    layout = Layout.from_json(Path(sys.argv[1]).read_text())
    Programs(layout, programs.control_plane(layout), ()).run()
