#!/bin/sh
# Prints the Python that makes the environment. It has to run (pyenv's shims may not) and to bring venv and pip
# (Debian's python3 may not).
#
#   tools/find_python.sh            the newest that has a lock file, on PATH or under pyenv
#   tools/find_python.sh 3.12       a Python of this version
#   tools/find_python.sh /a/python  this one, if it has a lock file
supported=$(cd "$(dirname "$0")/../requirements" && ls 3.*.lock | sed 's/\.lock$//' | sort -t. -k2 -rn)

suits() { # PYTHON VERSION
  "$1" -c "import sys, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2> /dev/null
}

case "${1:-}" in
  "" | 3.*) given="" versions="${1:-$supported}" ;;
  *) given="$1" versions="$supported" ;;
esac
for version in $versions; do
  echo "$supported" | grep -qxF "$version" || continue
  for python in ${given:-"python$version" python3 "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3}; do
    if suits "$python" "$version"; then
      command -v "$python"
      exit
    fi
  done
done
received="found none on PATH or under pyenv"
if ! echo "$supported" | grep -qxF "${1:-3}" && [ "${1:-}" ] && [ ! "$given" ]; then
  received="received '$1'"
fi
if [ "$given" ]; then
  received="received '$given', $("$given" --version 2> /dev/null || echo "not a Python that runs")"
fi
case " $(echo $supported) " in *" $versions "*) ;; *) versions="$supported" ;; esac
echo "PocketBERT needs Python $(echo $versions | sed 's/ / or /g') with venv and pip; $received." \
     "Install one, or name it: make venv PYTHON=/path/to/python" >&2
exit 2
