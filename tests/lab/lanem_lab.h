/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lab is called and where it is found: a lock that says whether it lives, a control socket, and the
 * names of its two namespaces in /run/netns. Also what a dead lab of that name left there. Main thread.
 */
#ifndef TESTS_LAB_LANEM_LAB_H
#define TESTS_LAB_LANEM_LAB_H

#include <stdbool.h>
#include <stddef.h>

#define LAB_NAME_MAX 40
/* sun_path of a unix socket has 108 bytes. */
#define LAB_PATH_MAX  108
#define LAB_NETNS_DIR "/run/netns"

struct lab {
	char name[LAB_NAME_MAX + 1];
	char dir[64];
	char lock_path[LAB_PATH_MAX];
	char control_path[LAB_PATH_MAX];
	char netns_name[2][LAB_NAME_MAX + 3];
	int lock_fd;
	bool published;
};

/*
 * Fills in the names, touches nothing. @control_path NULL: beside the lock. -EINVAL: no good name;
 * -ENAMETOOLONG.
 */
int lab_name(struct lab *lab, const char *name, const char *control_path);

/*
 * As an ordinary user: a user namespace in which this process is root. To be called after lab_name(), which
 * asks who the user is. 0 or -errno.
 */
int lab_become_root(void);

/* Locks the name and clears what a dead lab of that name left. -EBUSY: it lives. */
int lab_claim(struct lab *lab);
/* Makes `ip netns exec NAME-a` work. Failure harms nobody who uses `lanem exec`. */
int lab_publish(struct lab *lab, const int namespace_fd[2]);
/* Undoes lab_claim() and lab_publish(). */
void lab_release(struct lab *lab);

/* Sends @signal (0: none) to every process in either namespace; how many there are. */
int lab_signal_inhabitants(const int namespace_fd[2], int signal);

#endif
