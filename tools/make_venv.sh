# Make .venv with the Python that is named, unless it is there and works.
set -eu
python=$1

if [ -z "$python" ]; then
    echo "No Python 3.11, 3.12 or 3.13 was found. Install one, or name it: make PYTHON=/path/to/python" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'; then
    echo "$python is not Python 3.11, 3.12 or 3.13. Name another: make PYTHON=/path/to/python" >&2
    exit 1
fi
if .venv/bin/python -m pip --version >/dev/null 2>&1; then
    exit 0
fi
rm -rf .venv
if "$python" -m venv .venv 2>/dev/null; then
    exit 0
fi

# Debian and Ubuntu ship Python without ensurepip, in a package of its own.
rm -rf .venv
package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
echo "This Python makes no virtual environments; trying the system's package $package." >&2
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo -n"
if command -v apt-get >/dev/null && $sudo apt-get update -q && $sudo apt-get install -y -q "$package"; then
    exec "$python" -m venv .venv
fi
echo "Install $package (or a Python that has the venv module), then run make again." >&2
exit 1
