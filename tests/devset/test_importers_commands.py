"""Published shell commands: which programs they start, and whether they stay in the home."""

from __future__ import annotations

import pytest

from devset.importers.commands import ABSENT, programs, unfit

LOGS = "cat > ~/app.log <<'EOF'\nid,name\nservice=auth level=error\nit's another user: id\nwget /etc/hosts\nEOF\n"


@pytest.mark.parametrize(
    "command",
    [
        "cat ~/a",
        "find /home/user/Desktop -type f",
        "printf '<li>x</li>'",
        "ls 2>/dev/null",
        "sed -n '/a/,/b/p' ~/x",
        "awk -F: '/^a/ {print $1}' ~/x | sed -i \"/x y/d\" ~/y",
        "perl -ne 'print if /a/' ~/x",
        "awk -F ',' -v n=3 '$n ~ /a/' ~/x",
        "sed s/a/b/ ~/x",
        f"{LOGS}grep -c error ~/app.log",
        'code=$?; id=$(cat ~/n); echo "$id $code"',
        "printf 'id,name\\n' | tee ~/x; echo '{\"code\": 200, \"service\": 1}' > ~/y",
        "while IFS=, read -r id code; do echo $id; done < ~/x",
        "grep -q 'https://example.com/a' ~/x && grep -qx '/api/users' ~/y",
        'd=~/a; cat "$d"/file "$(dirname ~/x)"/y $(pwd)/z',
        "grep -qF '$HOME/.local/bin' ~/.bashrc",
        "python3 - <<'PY'\nid = open('/home/user/x').read()\nprint(id)\nPY",
        "python3 -c \"import json; id = 3; print(json.load(open('/home/user/x'))['code'])\"",
    ],
)
def test_commands_that_stay_in_the_home(command: str) -> None:
    assert unfit(command) is None


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/passwd",
        "ls ~/.local/bin",
        "gsettings get a b",
        "ls /tmp/x",
        "wget x.org",
        "sed -n '/a/p' /etc/passwd",
        "sed -n '/a/p' '/etc/passwd'",
        "awk '{print}' ~/x /etc/passwd",
        "sed -f '/etc/x' ~/x",
        "awk -v x=/etc/passwd '{print}' ~/x",
        'sed "s/a/$(cat /etc/passwd)/" ~/x',
        "perl -pe 's/a/b/' < /etc/passwd",
        "grep -q root '/etc/passwd'",
        'cat "/etc/passwd"',
        '[ "$(id -gn bob)" = x ] && echo a=true',
        "x=$(timeout 10 gsettings get a b | head -1)",
        "LANG=C ps aux | grep x",
        "bash -c 'cd ~; systemctl status x'",
        "python3 -c \"import subprocess; subprocess.run(['xrandr', '-q'])\"",
        "xxd ~/x | head -1",
        "python3 - <<'PY'\nimport subprocess\nsubprocess.run(['xrandr'])\nPY",
        "echo p | sudo -S cat ~/x",
    ],
)
def test_commands_that_leave_it(command: str) -> None:
    assert unfit(command) is not None


def test_programs_of_a_list_and_what_only_looks_like_one() -> None:
    assert programs(["bash", "-c", "id; who"], shell=False) == {"bash", "id", "who"}
    assert programs(["echo", "a; id", "who"], shell=False) == {"echo"}
    assert programs("cat x | xargs -0 rm; if ! test -f y; then exec mv a b; fi") == {"cat", "rm", "test", "mv", "fi"}
    assert not programs("f() { true; }; [ $(date) id ] && echo '' who > id") & {"id", "who"}
    assert programs("echo 'never closed; id") == {"echo"}


def test_the_programs_that_our_machine_lacks_are_no_common_ones() -> None:
    assert not ABSENT & programs("python3 -c 1; awk 1 x; zip a; jq . x; sqlite3 x; file x; tree; bc; curl; git")
