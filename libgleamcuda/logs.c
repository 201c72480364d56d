// SPDX-License-Identifier: Apache-2.0
/*
 * The driver's log as programs read it (cuLogs*): a line for each call that failed, the newest ones kept, told to whoever has
 * asked to be called. What the node's driver itself writes stays there; every failure that a program sees is here. Any thread.
 */
#include "libgleamcuda/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"

#define LINES	  100u /* kept, as many as the driver keeps */
#define LINE_SIZE 128u
#define TRUNCATED "(older lines are gone)\n"

struct CUlogsCallbackEntry_st {
	CUlogsCallbackHandle next;
	CUlogsCallback callback;
	void *data;
};

/* guarded by lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES][LINE_SIZE];
static uint32_t count; /* of all that were ever written: the newest is at (count - 1) % LINES */
static CUlogsCallbackHandle entries;

/* ---- writing ---- */

static size_t line_format(char *line, const struct call *call, CUresult result)
{
	const char *name = NULL;
	struct timespec now;
	struct tm tm = { 0 };
	int length;

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	if (cuGetErrorName(result, &name) != CUDA_SUCCESS)
		name = "an unknown error";
	length = snprintf(line, LINE_SIZE, "[%02d:%02d:%02d.%03ld][%ld][CUDA][E] %s: %s", tm.tm_hour, tm.tm_min, tm.tm_sec,
			  now.tv_nsec / 1000000, (long)getpid(), api_names[call->api], name);
	return length < (int)LINE_SIZE ? (size_t)length : LINE_SIZE - 1;
}

static void logs_failed(const struct call *call, CUresult result)
{
	/* Callbacks may fail calls of their own; and one that unregisters itself must find the lock free. */
	static __thread bool inside;
	struct CUlogsCallbackEntry_st called[8];
	uint32_t calls = 0;
	char line[LINE_SIZE];
	size_t length;

	if (result == CUDA_ERROR_NOT_READY || inside)
		return;
	inside = true;
	length = line_format(line, call, result);
	pthread_mutex_lock(&lock);
	memcpy(lines[count % LINES], line, length + 1);
	count++;
	for (CUlogsCallbackHandle e = entries; e && calls < sizeof(called) / sizeof(called[0]); e = e->next)
		called[calls++] = *e;
	pthread_mutex_unlock(&lock);
	for (uint32_t i = 0; i < calls; i++)
		called[i].callback(called[i].data, CU_LOG_LEVEL_ERROR, line, length);
	inside = false;
}

void logs_start(void)
{
	__atomic_store_n(&call_failed, logs_failed, __ATOMIC_RELEASE);
}

/* ---- reading ---- */

CUresult do_cuLogsRegisterCallback(struct call *call, CUlogsCallback callbackFunc, void *userData,
				   CUlogsCallbackHandle *callback_out)
{
	CUlogsCallbackHandle entry;

	if (!callbackFunc)
		return CUDA_ERROR_INVALID_VALUE;
	entry = malloc(sizeof(*entry));
	if (!entry)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*entry = (struct CUlogsCallbackEntry_st){ .callback = callbackFunc, .data = userData };
	pthread_mutex_lock(&lock);
	entry->next = entries;
	entries = entry;
	pthread_mutex_unlock(&lock);
	if (callback_out)
		*callback_out = entry;
	return CUDA_SUCCESS;
}

CUresult do_cuLogsUnregisterCallback(struct call *call, CUlogsCallbackHandle callback)
{
	CUlogsCallbackHandle *at = &entries;

	pthread_mutex_lock(&lock);
	while (*at && *at != callback)
		at = &(*at)->next;
	if (!*at) {
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*at = callback->next;
	pthread_mutex_unlock(&lock);
	free(callback);
	return CUDA_SUCCESS;
}

CUresult do_cuLogsCurrent(struct call *call, CUlogIterator *iterator_out, unsigned int flags)
{
	if (!iterator_out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	*iterator_out = count;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* All lines from @from on, in memory of its own; *next_out is where the next ones begin. */
static char *lines_take(CUlogIterator from, CUlogIterator *next_out, size_t *size_out)
{
	char *text = malloc(LINES * LINE_SIZE + sizeof(TRUNCATED));
	uint32_t first;
	size_t at = 0;

	if (!text)
		return NULL;
	text[0] = '\0';
	pthread_mutex_lock(&lock);
	first = count > LINES ? count - LINES : 0;
	if (from < first)
		at = (size_t)sprintf(text, TRUNCATED);
	for (uint32_t i = from < first ? first : from; i < count; i++)
		at += (size_t)sprintf(text + at, "%s\n", lines[i % LINES]);
	*next_out = count;
	pthread_mutex_unlock(&lock);
	*size_out = at;
	return text;
}

CUresult do_cuLogsDumpToMemory(struct call *call, CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
	CUlogIterator next;
	size_t length;
	char *text;

	if (!buffer || !size || !*size || flags)
		return CUDA_ERROR_INVALID_VALUE;
	text = lines_take(iterator ? *iterator : 0, &next, &length);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* What is cut off is the oldest. */
	if (length >= *size) {
		memcpy(buffer, text + length - (*size - 1), *size - 1);
		length = *size - 1;
	} else {
		memcpy(buffer, text, length);
	}
	buffer[length] = '\0';
	*size = length;
	if (iterator)
		*iterator = next;
	free(text);
	return CUDA_SUCCESS;
}

static bool text_write(int fd, const char *text, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t got = write(fd, text + at, size - at);

		if (got < 0 && errno != EINTR)
			return false;
		at += got > 0 ? (size_t)got : 0;
	}
	return true;
}

CUresult do_cuLogsDumpToFile(struct call *call, CUlogIterator *iterator, const char *pathToFile, unsigned int flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	CUlogIterator next;
	size_t length;
	char *text;
	int fd;

	if (!pathToFile || flags)
		return CUDA_ERROR_INVALID_VALUE;
	text = lines_take(iterator ? *iterator : 0, &next, &length);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fd = open(pathToFile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd >= 0) {
		if (text_write(fd, text, length))
			result = CUDA_SUCCESS;
		close(fd);
	}
	if (!result && iterator)
		*iterator = next;
	free(text);
	return result;
}
