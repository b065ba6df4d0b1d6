#!/bin/busybox sh
# The first program of the guest: it finds the root file system and goes there.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
for module in virtio_pci virtio_blk crc32c_generic ext4; do
	modprobe "$module" || echo "early: no $module"
done
mount -t ext4 -o ro,noload /dev/vda /root || exec sh
umount /proc
mount --move /dev /root/dev
# The shell of the new root ends up as the first process, and nothing is left of this one.
exec switch_root /root /init
