// SPDX-License-Identifier: Apache-2.0
/*
 * The range map: two treaps ordered by start, one of ranges and one of reservations (which may hold ranges), and a
 * third one of the device addresses of memory that has another one for the host. Any thread: one read-write lock
 * guards all three.
 */
#include "libgleamcuda/range.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct node {
	uint64_t start; /* key; in the alias tree the device address */
	uint64_t size;
	uint64_t weight; /* random: parents are not lighter than their children, which keeps the tree flat */
	struct node *left, *right;
	struct range *range; /* owned by the node in the tree of ranges or reservations */
};

/* guarded by lock */
static struct {
	pthread_rwlock_t lock;
	struct node *ranges;
	struct node *reserved;
	struct node *aliases;
	uint64_t id_last;
	uint64_t random;
	size_t count;
} map = {
	.lock = PTHREAD_RWLOCK_INITIALIZER,
	.random = 0x9e3779b97f4a7c15ull,
};

/* xorshift64: any spread of weights will do, they need not be hard to guess. */
static uint64_t weight_next_locked(void)
{
	map.random ^= map.random << 13;
	map.random ^= map.random >> 7;
	map.random ^= map.random << 17;
	return map.random;
}

/* The node with the greatest start that is not above @address. */
static struct node *tree_floor(struct node *node, uint64_t address)
{
	struct node *found = NULL;

	while (node) {
		if (node->start <= address) {
			found = node;
			node = node->right;
		} else {
			node = node->left;
		}
	}
	return found;
}

static struct node *tree_at(struct node *node, uint64_t address)
{
	struct node *found = tree_floor(node, address);

	return found && address - found->start < found->size ? found : NULL;
}

/* The lowest node that ends after @address: nodes of a tree don't overlap, so ends are in the order of starts. */
static struct node *tree_after(struct node *node, uint64_t address)
{
	struct node *found = NULL;

	while (node) {
		if (node->start + (node->size - 1) >= address) {
			found = node;
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return found;
}

static bool tree_overlaps(struct node *tree, uint64_t start, uint64_t size)
{
	struct node *next = tree_after(tree, start);

	return next && (next->start <= start || next->start - start < size);
}

/* Split by key: left gets what starts below @start. */
static void tree_split(struct node *node, uint64_t start, struct node **left_out, struct node **right_out)
{
	while (node) {
		if (node->start < start) {
			*left_out = node;
			left_out = &node->right;
			node = node->right;
		} else {
			*right_out = node;
			right_out = &node->left;
			node = node->left;
		}
	}
	*left_out = NULL;
	*right_out = NULL;
}

static struct node *tree_join(struct node *left, struct node *right)
{
	struct node *root = NULL;
	struct node **at = &root;

	while (left && right) {
		if (left->weight >= right->weight) {
			*at = left;
			at = &left->right;
			left = left->right;
		} else {
			*at = right;
			at = &right->left;
			right = right->left;
		}
	}
	*at = left ? left : right;
	return root;
}

static void tree_insert(struct node **tree, struct node *fresh)
{
	while (*tree && (*tree)->weight > fresh->weight)
		tree = fresh->start < (*tree)->start ? &(*tree)->left : &(*tree)->right;
	tree_split(*tree, fresh->start, &fresh->left, &fresh->right);
	*tree = fresh;
}

/* Unlinks the node that begins at @start; NULL if none does. */
static struct node *tree_remove(struct node **tree, uint64_t start)
{
	while (*tree && (*tree)->start != start)
		tree = start < (*tree)->start ? &(*tree)->left : &(*tree)->right;

	struct node *node = *tree;

	if (node)
		*tree = tree_join(node->left, node->right);
	return node;
}

static bool range_has_alias(const struct range *range)
{
	return range->dev && range->dev != range->start;
}

static bool extent_is_bad(uint64_t start, uint64_t size)
{
	return size == 0 || start == 0 || size - 1 > UINT64_MAX - start;
}

static struct node *node_new(uint64_t start, uint64_t size)
{
	struct node *node = calloc(1, sizeof(*node));

	if (node) {
		node->start = start;
		node->size = size;
	}
	return node;
}

static int alias_add_locked(struct range *range, struct node *alias)
{
	if (extent_is_bad(range->dev, range->size))
		return -EINVAL;
	if (tree_overlaps(map.aliases, range->dev, range->size) || tree_overlaps(map.ranges, range->dev, range->size))
		return -EEXIST;
	alias->start = range->dev;
	alias->size = range->size;
	alias->weight = weight_next_locked();
	alias->range = range;
	tree_insert(&map.aliases, alias);
	return 0;
}

int range_add(struct range *range)
{
	bool reserved = range->kind == RANGE_RESERVED;
	struct node *node, *alias = NULL;
	struct range *copy;
	int err = -ENOMEM;

	if (extent_is_bad(range->start, range->size))
		return -EINVAL;
	node = node_new(range->start, range->size);
	copy = malloc(sizeof(*copy));
	if (!node || !copy)
		goto free_node;
	if (range_has_alias(range)) {
		alias = node_new(range->dev, range->size);
		if (!alias)
			goto free_node;
	}

	pthread_rwlock_wrlock(&map.lock);
	err = -EEXIST;
	if (tree_overlaps(reserved ? map.reserved : map.ranges, range->start, range->size) ||
	    tree_overlaps(map.aliases, range->start, range->size))
		goto unlock;
	*copy = *range;
	if (alias) {
		err = alias_add_locked(copy, alias);
		if (err)
			goto unlock;
	}
	if (!copy->buffer_id)
		copy->buffer_id = ++map.id_last;
	range->buffer_id = copy->buffer_id;
	node->range = copy;
	node->weight = weight_next_locked();
	tree_insert(reserved ? &map.reserved : &map.ranges, node);
	map.count++;
	pthread_rwlock_unlock(&map.lock);
	return 0;

unlock:
	pthread_rwlock_unlock(&map.lock);
	free(alias);
free_node:
	free(copy);
	free(node);
	return err;
}

int range_remove(uint64_t start, bool reserved, struct range *range_out)
{
	struct node *node, *alias = NULL;

	pthread_rwlock_wrlock(&map.lock);
	node = tree_remove(reserved ? &map.reserved : &map.ranges, start);
	if (node) {
		map.count--;
		if (range_has_alias(node->range))
			alias = tree_remove(&map.aliases, node->range->dev);
	}
	pthread_rwlock_unlock(&map.lock);
	if (!node)
		return -ENOENT;
	if (range_out)
		*range_out = *node->range;
	free(node->range);
	free(node);
	free(alias);
	return 0;
}

/* The end of a search under the lock, which ends here. */
static bool found_locked(const struct node *node, struct range *range_out)
{
	if (node)
		*range_out = *node->range;
	pthread_rwlock_unlock(&map.lock);
	return node != NULL;
}

bool range_find(uint64_t address, struct range *range_out)
{
	struct node *node;

	pthread_rwlock_rdlock(&map.lock);
	node = tree_at(map.ranges, address);
	if (!node)
		node = tree_at(map.aliases, address);
	if (!node)
		node = tree_at(map.reserved, address);
	return found_locked(node, range_out);
}

bool range_find_reserved(uint64_t address, struct range *range_out)
{
	pthread_rwlock_rdlock(&map.lock);
	return found_locked(tree_at(map.reserved, address), range_out);
}

bool range_find_next(uint64_t address, struct range *range_out)
{
	pthread_rwlock_rdlock(&map.lock);
	return found_locked(tree_after(map.ranges, address), range_out);
}

bool range_overlaps(uint64_t address, uint64_t size)
{
	bool overlaps;

	if (size == 0)
		return false;
	pthread_rwlock_rdlock(&map.lock);
	overlaps = tree_overlaps(map.ranges, address, size) || tree_overlaps(map.aliases, address, size);
	pthread_rwlock_unlock(&map.lock);
	return overlaps;
}

int range_flags(uint64_t start, uint32_t clear, uint32_t set)
{
	int err = -ENOENT;

	pthread_rwlock_wrlock(&map.lock);

	struct node *node = tree_at(map.ranges, start);

	if (node && node->start == start) {
		node->range->flags = (node->range->flags & ~clear) | set;
		err = 0;
	}
	pthread_rwlock_unlock(&map.lock);
	return err;
}

int range_access(uint64_t start, int device, uint32_t access)
{
	int err = -ENOENT;

	pthread_rwlock_wrlock(&map.lock);

	struct node *node = tree_at(map.ranges, start);

	if (node && node->start == start) {
		node->range->access &= ~(3u << 2 * device);
		node->range->access |= (access & 3) << 2 * device;
		err = 0;
	}
	pthread_rwlock_unlock(&map.lock);
	return err;
}

int range_place(uint64_t start, uint64_t dev)
{
	struct node *alias = node_new(dev, 1);
	int err = -ENOENT;

	if (!alias)
		return -ENOMEM;
	pthread_rwlock_wrlock(&map.lock);

	struct node *node = tree_at(map.ranges, start);

	if (node && node->start == start) {
		uint64_t before = node->range->dev;

		err = before && before != dev ? -EEXIST : 0;
		if (!err && before != dev) {
			node->range->dev = dev;
			if (range_has_alias(node->range)) {
				err = alias_add_locked(node->range, alias);
				if (err)
					node->range->dev = 0;
				else
					alias = NULL;
			}
		}
	}
	pthread_rwlock_unlock(&map.lock);
	free(alias);
	return err;
}

/* Collects what belongs to @context; no recursion: trees of many thousands are flat, but nothing promises it. */
static struct node *context_next_locked(const struct context *context, uint64_t *at)
{
	struct node *node;

	while ((node = tree_after(map.ranges, *at)) != NULL) {
		uint64_t last = node->start + (node->size - 1);

		if (node->range->context == context)
			return node;
		if (last == UINT64_MAX)
			break;
		*at = last + 1;
	}
	return NULL;
}

size_t range_remove_context(const struct context *context, void (*each)(const struct range *range))
{
	struct node *removed = NULL, *node, *alias;
	uint64_t at = 0;
	size_t count = 0;

	pthread_rwlock_wrlock(&map.lock);
	while ((node = context_next_locked(context, &at)) != NULL) {
		tree_remove(&map.ranges, node->start);
		if (range_has_alias(node->range)) {
			alias = tree_remove(&map.aliases, node->range->dev);
			free(alias);
		}
		map.count--;
		node->left = removed;
		removed = node;
	}
	pthread_rwlock_unlock(&map.lock);
	while (removed) {
		node = removed;
		removed = node->left;
		if (each)
			each(node->range);
		free(node->range);
		free(node);
		count++;
	}
	return count;
}

size_t range_count(void)
{
	size_t count;

	pthread_rwlock_rdlock(&map.lock);
	count = map.count;
	pthread_rwlock_unlock(&map.lock);
	return count;
}
