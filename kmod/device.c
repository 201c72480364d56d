// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual GPUs: /dev/gleam<N> of class gleam, one for each remote GPU that the broker has announced
 * by netlink. Opening one gives a session that may use this GPU and no other, so modes of the node
 * and device cgroups decide who uses which. The module makes up none, and removes all when no
 * broker comes back.
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/device/class.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "gleam.h"

struct gleam_gpu {
	struct device dev;
	struct cdev cdev;	/* its parent is dev, so an open in progress keeps this structure */
	u32 index;

	bool gone;		/* guarded by gleam_lock */

	spinlock_t lock;	/* of what follows */
	/* guarded by lock, for readers of sysfs; written with gleam_devices_lock, too */
	struct gleam_gpu_setting setting;
};

static DEFINE_MUTEX(gleam_devices_lock);
static struct gleam_gpu *gpus[GLEAM_DEVICES_MAX];	/* guarded by gleam_devices_lock */
static u64 present;					/* guarded by gleam_lock */
static dev_t gpu_devt;

static const char * const state_names[] = {
	[GLEAM_DEVICE_DOWN] = "down",
	[GLEAM_DEVICE_UP] = "up",
	[GLEAM_DEVICE_DRAINING] = "draining",
};

static void gpu_setting(struct gleam_gpu *gpu, struct gleam_gpu_setting *setting)
{
	spin_lock(&gpu->lock);
	*setting = gpu->setting;
	spin_unlock(&gpu->lock);
}

/* ---- sysfs ---- */

#define GPU_ATTR(field, format, value)									\
static ssize_t field##_show(struct device *dev, struct device_attribute *attr, char *buf)		\
{													\
	struct gleam_gpu_setting setting;								\
													\
	gpu_setting(container_of(dev, struct gleam_gpu, dev), &setting);				\
	return sysfs_emit(buf, format "\n", value);							\
}													\
static DEVICE_ATTR_RO(field)

GPU_ATTR(name, "%s", setting.name);
GPU_ATTR(server, "%s", setting.server);
GPU_ATTR(gpu, "%u", setting.gpu);
GPU_ATTR(memory, "%llu", setting.memory);
GPU_ATTR(state, "%s", state_names[setting.state]);

static ssize_t sessions_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct gleam_gpu *gpu = container_of(dev, struct gleam_gpu, dev);

	return sysfs_emit(buf, "%u\n", gleam_sessions_of_device(gpu->index));
}
static DEVICE_ATTR_RO(sessions);

static struct attribute *gpu_attrs[] = {
	&dev_attr_name.attr,
	&dev_attr_server.attr,
	&dev_attr_gpu.attr,
	&dev_attr_memory.attr,
	&dev_attr_state.attr,
	&dev_attr_sessions.attr,
	NULL
};
ATTRIBUTE_GROUPS(gpu);

static char *gpu_devnode(GLEAM_CLASS_CONST struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = container_of(dev, struct gleam_gpu, dev)->setting.mode;	/* never changes */
	return NULL;
}

static int gpu_uevent(GLEAM_CLASS_CONST struct device *dev, struct kobj_uevent_env *env)
{
	struct gleam_gpu_setting setting;
	int err;

	gpu_setting((struct gleam_gpu *)container_of(dev, struct gleam_gpu, dev), &setting);
	err = add_uevent_var(env, "GLEAM_NAME=%s", setting.name);
	if (!err)
		err = add_uevent_var(env, "GLEAM_SERVER=%s", setting.server);
	if (!err)
		err = add_uevent_var(env, "GLEAM_STATE=%s", state_names[setting.state]);
	return err;
}

static struct class gpu_class = {
	.name = "gleam",
	.dev_groups = gpu_groups,
	.devnode = gpu_devnode,
	.dev_uevent = gpu_uevent,
};

static void gpu_release(struct device *dev)
{
	kfree(container_of(dev, struct gleam_gpu, dev));
}

/* ---- opening ---- */

static int gpu_open(struct inode *inode, struct file *file)
{
	struct gleam_gpu *gpu = container_of(inode->i_cdev, struct gleam_gpu, cdev);

	/*
	 * The rest of its life is that of any session. Both operations are of this module, whose
	 * count stays.
	 */
	file->f_op = &gleam_session_fops;
	return gleam_session_open(file, BIT_ULL(gpu->index), &gpu->gone);
}

static const struct file_operations gpu_fops = {
	.owner = THIS_MODULE,
	.open = gpu_open,
};

/* ---- coming and going ---- */

u64 gleam_devices_present(void)
{
	u64 now;

	spin_lock(&gleam_lock);
	now = present;
	spin_unlock(&gleam_lock);
	return now;
}

static int index_find(const struct gleam_gpu_setting *setting)
{
	if (setting->index_given)
		return gpus[setting->index] ? -EEXIST : (int)setting->index;
	for (int i = 0; i < GLEAM_DEVICES_MAX; i++)
		if (!gpus[i])
			return i;
	return -ENOSPC;
}

static void gpu_present(struct gleam_gpu *gpu, bool is)
{
	spin_lock(&gleam_lock);
	gpu->gone = !is;
	if (is)
		present |= BIT_ULL(gpu->index);
	else
		present &= ~BIT_ULL(gpu->index);
	spin_unlock(&gleam_lock);
}

int gleam_device_add(struct gleam_gpu_setting *setting)
{
	struct gleam_gpu *gpu;
	int err;

	gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	if (!gpu)
		return -ENOMEM;

	mutex_lock(&gleam_devices_lock);
	err = index_find(setting);
	if (err < 0) {
		kfree(gpu);
		goto unlock;
	}
	gpu->index = err;
	setting->index = gpu->index;
	gpu->setting = *setting;
	spin_lock_init(&gpu->lock);
	device_initialize(&gpu->dev);	/* from here on put_device() frees it */
	gpu->dev.class = &gpu_class;
	gpu->dev.devt = gpu_devt + gpu->index;
	gpu->dev.release = gpu_release;
	err = dev_set_name(&gpu->dev, "gleam%u", gpu->index);
	if (err)
		goto put_gpu;
	cdev_init(&gpu->cdev, &gpu_fops);
	gpu->cdev.owner = THIS_MODULE;
	/* Before the node is there, so that the first to see it can open it. */
	gpu_present(gpu, true);
	err = cdev_device_add(&gpu->cdev, &gpu->dev);
	if (err)
		goto not_present;
	gpus[gpu->index] = gpu;
	mutex_unlock(&gleam_devices_lock);
	gleam_notify_device(GLEAM_CMD_DEVICE_ADD_NTF, setting);
	return 0;

not_present:
	gpu_present(gpu, false);
put_gpu:
	put_device(&gpu->dev);
unlock:
	mutex_unlock(&gleam_devices_lock);
	return err;
}

int gleam_device_set(u32 index, const struct gleam_gpu_setting *setting, unsigned int changes)
{
	struct gleam_gpu_setting now;
	struct gleam_gpu *gpu;

	mutex_lock(&gleam_devices_lock);
	gpu = gpus[index];
	if (!gpu) {
		mutex_unlock(&gleam_devices_lock);
		return -ENODEV;
	}
	now = gpu->setting;
	if (changes & GLEAM_CHANGE_NAME)
		memcpy(now.name, setting->name, sizeof(now.name));
	if (changes & GLEAM_CHANGE_SERVER)
		memcpy(now.server, setting->server, sizeof(now.server));
	if (changes & GLEAM_CHANGE_GPU)
		now.gpu = setting->gpu;
	if (changes & GLEAM_CHANGE_MEMORY)
		now.memory = setting->memory;
	if (changes & GLEAM_CHANGE_STATE)
		now.state = setting->state;
	spin_lock(&gpu->lock);
	gpu->setting = now;
	spin_unlock(&gpu->lock);
	kobject_uevent(&gpu->dev.kobj, KOBJ_CHANGE);
	mutex_unlock(&gleam_devices_lock);
	gleam_notify_device(GLEAM_CMD_DEVICE_CHANGE_NTF, &now);
	return 0;
}

int gleam_device_del(u32 index)
{
	struct gleam_gpu_setting setting;
	struct gleam_gpu *gpu;

	mutex_lock(&gleam_devices_lock);
	gpu = gpus[index];
	if (!gpu) {
		mutex_unlock(&gleam_devices_lock);
		return -ENODEV;
	}
	setting = gpu->setting;
	gpu_present(gpu, false);		/* nobody opens it any more */
	gleam_sessions_drop_device(index);	/* nobody has a right to its number */
	cdev_device_del(&gpu->cdev, &gpu->dev);
	gpus[index] = NULL;			/* now the number may be another's */
	mutex_unlock(&gleam_devices_lock);
	gleam_notify_device(GLEAM_CMD_DEVICE_DEL_NTF, &setting);
	put_device(&gpu->dev);
	return 0;
}

void gleam_devices_del_all(void)
{
	for (u32 i = 0; i < GLEAM_DEVICES_MAX; i++)
		gleam_device_del(i);
}

int gleam_device_find(u32 index, struct gleam_gpu_setting *setting_out)
{
	int err = -ENOENT;

	mutex_lock(&gleam_devices_lock);
	for (; index < GLEAM_DEVICES_MAX; index++)
		if (gpus[index]) {
			*setting_out = gpus[index]->setting;
			err = 0;
			break;
		}
	mutex_unlock(&gleam_devices_lock);
	return err;
}

int gleam_devices_init(void)
{
	int err = class_register(&gpu_class);

	if (err)
		return err;
	err = alloc_chrdev_region(&gpu_devt, 0, GLEAM_DEVICES_MAX, "gleam");
	if (err)
		class_unregister(&gpu_class);
	return err;
}

void gleam_devices_exit(void)
{
	gleam_devices_del_all();
	unregister_chrdev_region(gpu_devt, GLEAM_DEVICES_MAX);
	class_unregister(&gpu_class);
}
