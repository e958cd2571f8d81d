# Parts of the tests of packages: test.sh and test-libraries.sh read this file.

passed=0 failed=0
# shows NAME COMMAND...: the command must succeed
shows() {
    local name=$1 said status
    shift
    # Not in a condition: there, a failure inside a function would not end it.
    set +e
    said=$(set -e; "$@" 2>&1)
    status=$?
    set -e
    if [[ $status -eq 0 ]]; then
        passed=$((passed + 1)) && echo "  $name"
    else
        failed=$((failed + 1)) && printf '  FAILED: %s\n%s\n' "$name" "$said" | head -30
    fi
}
equal() { diff <(sort "$1") <(sort "$2"); }
# Files of a root that are not the package manager's own notes: files ROOT [TEST OF FIND]...
files() { (cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp -o -path ./var/log \
    -o -path ./var/cache -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/lib/rpm \) -prune -o "${@:2}" -print); }

# The newest file in target/dist with such a name.
newest() { ls -t "$dist"/$1 2>/dev/null | head -1; }
