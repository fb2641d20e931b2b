"""The images that a node's pods run: ours, made from deploy/Dockerfile as it is, and a probe for the tests' own pods.

No registry is asked. In place of the Dockerfile's base stands a Debian of the same release with the interpreter that
runs this, under the same name and tag, without a digest. Whatever is made is kept by a key of all that it is made from.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from shared.errors import HeadroomError
from tests.apiserver.binaries import Unavailable
from tests.image import dockerfile
from tests.node import tools

ROOT = Path(__file__).resolve().parents[2]
HEADROOM = "docker.io/library/headroom"
PROBE = "docker.io/library/headroom-probe:1"
SCHEDULER, SCHEDULER_TAG = "docker.io/library/kube-scheduler", "1"
PROBE_SOURCES = Path(__file__).parent / "probe"
_DOCKERFILE = ROOT / "deploy" / "Dockerfile"
KEPT = 3  # versions of an image of ours

# What CPython's own image has for the modules of its standard library.
_LIBRARIES = (
    "ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,"
    "libreadline8t64,libsqlite3-0,libssl3t64,libuuid1,zlib1g"
)
_LEFT_OUT = ("__pycache__", "test", "tests", "idle_test", "lib2to3", "dist-packages", "*.a")
_VERSION = ".".join(map(str, sys.version_info[:3]))
_BASE_ENVIRONMENT = f"PATH=/usr/local/bin:/usr/bin:/bin PYTHON_VERSION={_VERSION}"
_MACHINES_OWN = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")  # by which its pip reaches packages


class BuildFailed(HeadroomError):
    """Our own Dockerfile cannot be carried out."""


class Builder:
    """Makes images with buildah, in a store of their own."""

    def __init__(self, cache: Path, unpacked_tools: Path) -> None:
        self._cache = cache
        self._tools = unpacked_tools

    def headroom(self, component: str, version: str) -> Path:
        """An archive with a component's image, as `HEADROOM`-component:`version`. Raises Unavailable, BuildFailed."""
        target = self._cache / f"{component}-{self.key(version)}.tar"
        if target.exists():
            target.touch()
            return target
        self._forget_old(component)
        base = self._base()
        image = f"{HEADROOM}-{component}:{version}"
        _say(f"building the image of the {component}")
        how = ("--isolation", "chroot", "--pull-never", "--target", component, "--build-arg", f"BASE={base}")
        try:
            self._buildah("bud", *how, "--file", _DOCKERFILE, "--tag", image, ROOT)
        except Unavailable as error:
            raise BuildFailed(str(error)) from error
        return self._archived(image, target)

    def probe(self, environment: Mapping[str, str]) -> Path:
        """An archive with `PROBE`, which also is the sandbox of every pod. Raises Unavailable."""
        target = self._cache / f"probe-{_key([PROBE], sorted(PROBE_SOURCES.iterdir()))}.tar"
        if target.exists():
            return target
        static = {**environment, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            program = Path(folder, "probe")
            _run(["go", "build", "-ldflags", "-s -w", "-o", str(program), "."], PROBE_SOURCES, static)
            return self._of_program(program, "/probe", "scratch", PROBE, target)

    def scheduler(self, program: Path) -> Path:
        """An archive with kube-scheduler as `SCHEDULER`, where upstream's image has it. Raises Unavailable."""
        target = self._cache / f"kube-scheduler-{_key([_base_key()], [program])}.tar"
        if target.exists():
            return target
        image = f"{SCHEDULER}:{SCHEDULER_TAG}"
        return self._of_program(program, f"/usr/local/bin/{program.name}", self._base(), image, target)

    def _of_program(self, program: Path, place: str, base: str, image: str, target: Path) -> Path:
        """An archive with an image that runs the program, which stands at `place` in it."""
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            shutil.copy(program, folder)
            file = Path(folder, "Dockerfile")
            file.write_text(f'FROM {base}\nCOPY {program.name} {place}\nUSER 65532:65532\nENTRYPOINT ["{place}"]\n')
            self._buildah("bud", "--isolation", "chroot", "--pull-never", "--file", file, "--tag", image, folder)
        return self._archived(image, target)

    def key(self, *words: str, more: Iterable[Path] = ()) -> str:
        """Of all that an image of ours is made from, and of `more` files."""
        sources = [ROOT / path for path in dockerfile.context(ROOT)]
        return _key([_base_key(), *words], [_DOCKERFILE, *sources, *more])

    def push_base(self, target: str) -> None:
        """Pushes the stand-in for the base to a registry that speaks HTTP. Raises Unavailable."""
        self._buildah("push", "--quiet", "--tls-verify=false", self._base(), f"docker://{target}")

    def _base(self) -> str:
        """The name of the base, after its stand-in was put into the store, if it is not there."""
        base = _base_name()
        made = self._cache / f"base-{_base_key()}"
        if made.exists():
            return base
        release = base.rsplit("-", 1)[-1]
        _say(f"building a stand-in for {base} from Debian's {release}, once")
        folder = self._cache / "base.unfinished"
        shutil.rmtree(folder, ignore_errors=True)
        root = folder / "root"
        root.mkdir(parents=True)
        self._inside("debootstrap", "--variant=minbase", f"--include={_LIBRARIES}", release, root)
        _copy_interpreter(root / "usr" / "local")
        for name in _MACHINES_OWN:
            if Path("/", name).exists():
                shutil.copy(Path("/", name), root / name)
        self._inside("chroot", root, "ldconfig")
        (root.parent / "Dockerfile").write_text(
            f'FROM scratch\nCOPY {root.name} /\nENV {_BASE_ENVIRONMENT}\nCMD ["python3"]\n'
        )
        self._buildah("bud", "--file", root.parent / "Dockerfile", "--tag", base, root.parent)
        shutil.rmtree(folder)
        made.touch()
        return base

    def _archived(self, image: str, target: Path) -> Path:
        """The image as a file; of the store it leaves nothing but bases."""
        unfinished = target.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        self._buildah("push", "--quiet", image, f"docker-archive:{unfinished}:{image}")
        self._buildah("rmi", image)
        unfinished.rename(target)
        return target

    def _forget_old(self, component: str) -> None:
        archives = sorted(self._cache.glob(f"{component}-*.tar"), key=lambda path: path.stat().st_mtime)
        for archive in archives[: -(KEPT - 1)]:
            archive.unlink()

    def _buildah(self, *words: str | Path) -> None:
        self._inside(*self._environment(), "buildah", *words)

    def _environment(self) -> list[str]:
        """Where buildah keeps things: nothing of it in the machine's own folders."""
        store = self._cache / "store"
        work = self._cache / "work"
        work.mkdir(exist_ok=True)
        configuration = self._cache / "storage.conf"
        configuration.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{store}"\nrunroot = "/mnt/containers"\n')
        return ["env", f"CONTAINERS_STORAGE_CONF={configuration}", f"TMPDIR={work}"]

    def _inside(self, *words: str | Path) -> None:
        _run(tools.command(self._tools, *words), ROOT, None)


def _copy_interpreter(target: Path) -> None:
    """As the base image has it: with pip and setuptools, and no other packages."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    source = Path(sys.base_prefix)
    (target / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "bin" / name, target / "bin" / name)
    (target / "bin" / "python3").symlink_to(name)
    left_out = shutil.ignore_patterns(*_LEFT_OUT, "site-packages")
    shutil.copytree(source / "lib" / name, target / "lib" / name, ignore=left_out, dirs_exist_ok=True)
    for library in (source / "lib").glob("libpython3*.so*"):
        shutil.copy(library, target / "lib" / library.name)


def _base_name() -> str:
    """Of the Dockerfile's base, without its digest, which a stand-in cannot have."""
    return dockerfile.parse(_DOCKERFILE.read_text()).arguments["BASE"].partition("@")[0]


def _base_key() -> str:
    return _key([_base_name(), _LIBRARIES, sys.version, _BASE_ENVIRONMENT, *_LEFT_OUT], [])


def _key(words: Iterable[str], files: Iterable[Path]) -> str:
    found = hashlib.sha256("\n".join(words).encode())
    for file in files:
        found.update(f"\n{file.name}\n{file.stat().st_mode}\n".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None) -> None:
    try:
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"no image: {error}") from error


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
