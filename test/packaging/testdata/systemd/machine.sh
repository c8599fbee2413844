# Starts systemd as the first process of namespaces of its own, over a copy of this machine's
# files that is not kept. It runs check.sh and exits with its result. $1 is a directory with
# the programs, the units and the scripts; $2 is where check.sh writes what it prints.
set -eu
dir=$1 out=$2
mount --make-rprivate /
mount -t tmpfs tmpfs "$dir/files"
cd "$dir/files"
mkdir changes work root
mount -t overlay overlay -o lowerdir=/,upperdir=changes,workdir=work root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do
	touch dev/$device
	mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up

rm -rf etc/dtask var/lib/dtask* var/lib/private/dtask*
install -m 755 "$dir"/bin/* usr/local/bin/
mkdir etc/units
cp "$dir"/units/* etc/units/
for target in sysinit basic network-online multi-user shutdown; do
	printf '[Unit]\nDefaultDependencies=no\n' >etc/units/$target.target
done
cp "$dir/check.sh" etc/units/check.sh
mkdir out
mount --bind "$out" out
cat >etc/units/check.service <<END
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/bash /etc/units/check.sh
StandardOutput=append:/out/printed
StandardError=append:/out/printed
END
printf '[Unit]\nDefaultDependencies=no\nWants=check.service\n' >etc/units/check.target

mkdir host
pivot_root . host
umount -l host
exec env -i container=dtask-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	SYSTEMD_UNIT_PATH=/etc/units /lib/systemd/systemd --system --unit=check.target </dev/null >/out/systemd 2>&1
