# Starts a coordinator and two workers by their units, as docs/deploy.md says, and lets systemd
# restart the coordinator. It runs as a service of the systemd that machine.sh starts.
set -eu -o pipefail
export HOME=/root

# until_ok COMMAND repeats it for at most a minute.
until_ok() {
	for _ in $(seq 120); do
		"$@" && return
		sleep 0.5
	done
	echo "failed for a minute: $*"
	exit 1
}
property() { systemctl show "$1" -p "$2" --value; }
ctl() { dtaskctl --addr unix:/var/lib/dtask/dtaskd.sock "$@"; }
leads() { ctl cluster status 2>/dev/null | grep -q '^leader n1,'; }
restarted() { [ "$(property dtaskd NRestarts)" -ge "$1" ] && leads; }
up() { [ "$(ctl worker list -o json | grep -c '"state": "up"')" = "$1" ]; }

dtaskd init --advertise 127.0.0.1:7460 >/dev/null 2>&1
systemctl start dtaskd
until_ok leads
[ "$(property dtaskd User)" = dtask ]
[ "$(stat -c '%a %U' /var/lib/private/dtask)" = '700 dtask' ]
echo 'passed: the coordinator is ready and leads, as a user of its own'

mkdir -p /etc/dtask
for name in w1 w2; do
	echo "DTASK_JOIN=$(ctl join-token create worker 2>/dev/null)" | install -m 600 /dev/stdin /etc/dtask/worker-$name.env
	systemctl start dtask-worker@$name
done
until_ok up 2
ctl worker list
echo 'passed: two workers are up'

ctl run --wait -- sh -c '[ "$(id -u)" != 0 ] && grep -q "NoNewPrivs:.1" /proc/self/status && ! touch /usr/changed /root/changed'
echo 'passed: a command runs without privileges'

kill -STOP "$(property dtaskd MainPID)"
until_ok restarted 1
echo 'passed: a coordinator that does not report itself is restarted'
kill -KILL "$(property dtaskd MainPID)"
until_ok restarted 2
until_ok up 2
echo 'passed: a killed coordinator is restarted'

systemctl stop dtask-worker@w1 dtask-worker@w2 dtaskd
for unit in dtask-worker@w1 dtask-worker@w2 dtaskd; do
	[ "$(property $unit Result) $(property $unit ActiveState)" = 'success inactive' ]
done
echo 'passed: all stop without an error'
