// SPDX-License-Identifier: GPL-2.0-only
/*
 * Session memory: a shmem file that only the kernel has made and that can only be mapped. Its pages
 * come when they are touched, may be swapped, and are charged to the memory cgroup of whoever
 * touches them first.
 *
 * The file has operations of its own, made of shmem's: mmap alone, so no hole can be punched and
 * nothing be truncated under the other side (seals say the same to those who ask), and release,
 * where the pages are uncharged, which is when the last mapping of the client and of the broker is
 * gone. Its f_op owner is this module, so the core drops the module's last reference after the last
 * call into it.
 *
 * Nothing in here is ever read by the kernel. It writes the header once, and state and reason at a
 * session's end, into a page that it keeps a reference to: whatever a process does to its mapping,
 * that page is memory of ours.
 */
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>

#include "gleam.h"
#include "broker/proto/ring.h"

static_assert(sizeof(struct ring_ctl) == 128);
static_assert(sizeof(struct session_header) <= PAGE_SIZE);
static_assert(SESSION_SIZE % PAGE_SIZE == 0);

struct gleam_memory {
	struct page *header;	/* counted */
	/*
	 * The client's mapping: shmem's operations, but open and close. A vma has a reference to
	 * the file, so it outlives them.
	 */
	struct vm_operations_struct ops;
	struct gleam_charge charge;
};

static const struct file_operations *shmem_fops;	/* set once, before any file is seen by others */

static int memory_mmap(struct file *file, struct vm_area_struct *vma)
{
	return shmem_fops->mmap(file, vma);
}

static int memory_release(struct inode *inode, struct file *file)
{
	struct gleam_memory *memory = file->private_data;

	put_page(memory->header);
	gleam_uncharge(&memory->charge);
	kfree(memory);
	return 0;
}

static const struct file_operations memory_fops = {
	.owner = THIS_MODULE,
	.mmap = memory_mmap,
	.fsync = noop_fsync,
	.release = memory_release,
};

static void header_write(struct page *page, u32 client_pid)
{
	struct session_header *header = kmap_local_page(page);

	header->magic = SESSION_MAGIC;
	header->version = SESSION_VERSION;
	header->size = SESSION_SIZE;
	header->client_pid = client_pid;
	header->state = SESSION_NEW;
	kunmap_local(header);
	set_page_dirty(page);
}

struct file *gleam_memory_new(struct gleam_charge *charge, u32 client_pid)
{
	struct gleam_memory *memory;
	struct file *file;
	struct page *page;
	int err;

	memory = kzalloc(sizeof(*memory), GFP_KERNEL_ACCOUNT);
	if (!memory)
		return ERR_PTR(-ENOMEM);
	/*
	 * Sparse: what is never touched is not to be there, so nothing is reserved for it either.
	 */
	file = shmem_file_setup("gleam-session", SESSION_SIZE, VM_NORESERVE);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		goto free_memory;
	}
	page = shmem_read_mapping_page(file->f_mapping, 0);
	if (IS_ERR(page)) {
		err = PTR_ERR(page);
		goto put_file;
	}
	header_write(page, client_pid);
	SHMEM_I(file_inode(file))->seals |= F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	memory->header = page;
	memory->charge = *charge;
	*charge = (struct gleam_charge){};
	file->private_data = memory;
	/* The same for all files. Nobody else knows this one yet. */
	shmem_fops = file->f_op;
	__module_get(THIS_MODULE);	/* dropped by the core with f_op; our caller holds one of its own */
	replace_fops(file, &memory_fops);
	return file;

put_file:
	fput(file);
free_memory:
	kfree(memory);
	return ERR_PTR(err);
}

int gleam_memory_map(struct file *file, struct vm_area_struct *vma, void (*open)(struct vm_area_struct *vma),
		     void (*close)(struct vm_area_struct *vma))
{
	struct gleam_memory *memory = file->private_data;
	int err;

	vma_set_file(vma, file);
	err = memory_mmap(file, vma);
	if (err)
		return err;
	memory->ops = *vma->vm_ops;
	memory->ops.open = open;
	memory->ops.close = close;
	vma->vm_ops = &memory->ops;
	return 0;
}

void gleam_memory_kill(struct file *file, u32 reason)
{
	struct gleam_memory *memory = file->private_data;
	struct session_header *header = kmap_local_page(memory->header);

	WRITE_ONCE(header->reason, reason);
	/*
	 * Pairs with the acquire of whoever looks at the state in user space: the reason is there
	 * before it.
	 */
	smp_store_release(&header->state, SESSION_DEAD);
	kunmap_local(header);
	set_page_dirty(memory->header);
}
