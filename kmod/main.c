// SPDX-License-Identifier: GPL-2.0-only
/*
 * gleam.ko: the way in for programs that use remote GPUs, where it is loaded. docs/kernel.md has
 * the whole of it; it carries no CUDA data and reads none. Here: loading, unloading, /dev/gleam and
 * /dev/gleam-broker, counters in sysfs.
 */
#include <linux/device.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>

#include "gleam.h"

#define GLEAM_ATTR(field, format, value)								\
static ssize_t field##_show(struct device *dev, struct device_attribute *attr, char *buf)		\
{													\
	return sysfs_emit(buf, format "\n", value);							\
}													\
static DEVICE_ATTR_RO(field)

GLEAM_ATTR(abi, "%u", GLEAM_ABI_VERSION);
GLEAM_ATTR(sessions, "%d", atomic_read(&gleam_session_count));
GLEAM_ATTR(opened, "%lld", (long long)atomic64_read(&gleam_opened));
GLEAM_ATTR(doorbells, "%lld", (long long)atomic64_read(&gleam_doorbells));
GLEAM_ATTR(rings, "%lld", (long long)atomic64_read(&gleam_rings));
GLEAM_ATTR(broker, "%d", gleam_broker_pid(task_active_pid_ns(current)));

static struct attribute *gleam_attrs[] = {
	&dev_attr_abi.attr,
	&dev_attr_sessions.attr,	/* open now */
	&dev_attr_opened.attr,		/* since the module was loaded */
	&dev_attr_doorbells.attr,	/* of clients, all of them together */
	&dev_attr_rings.attr,		/* of the broker */
	&dev_attr_broker.attr,		/* its pid; 0 without one */
	NULL
};
ATTRIBUTE_GROUPS(gleam);

/*
 * As open as the GPU devices of a machine usually are; an administrator's udev rules say otherwise.
 */
static struct miscdevice session_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "gleam",
	.fops = &gleam_session_fops,
	.mode = 0666,
	.groups = gleam_groups,
};

static struct miscdevice broker_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "gleam-broker",
	.fops = &gleam_broker_fops,
	.mode = 0600,
};

static int __init gleam_init(void)
{
	int err;

	err = gleam_devices_init();
	if (err)
		return err;
	err = gleam_netlink_init();
	if (err)
		goto devices_exit;
	err = misc_register(&broker_misc);
	if (err)
		goto netlink_exit;
	err = misc_register(&session_misc);
	if (err)
		goto broker_deregister;
	gleam_debugfs_init();
	return 0;

broker_deregister:
	misc_deregister(&broker_misc);
netlink_exit:
	gleam_netlink_exit();
devices_exit:
	gleam_devices_exit();
	return err;
}

/* No file and no mapping of ours is left, or the core would not be here. */
static void __exit gleam_exit(void)
{
	gleam_debugfs_exit();
	misc_deregister(&session_misc);
	misc_deregister(&broker_misc);
	gleam_broker_exit();
	gleam_devices_exit();	/* tells it by netlink */
	gleam_netlink_exit();
	gleam_accounts_exit();
	WARN_ON(!xa_empty(&gleam_sessions));
}

module_init(gleam_init);
module_exit(gleam_exit);
MODULE_DESCRIPTION("Gleam: sessions of programs that use remote GPUs");
MODULE_LICENSE("GPL");
