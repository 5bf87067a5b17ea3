/* Stands between the log and the C library, and lets file operations fail.
 *
 * FAULT_LOG    every call on a segment is noted here: what, on which file, with what result
 * FAULT_ARM    nothing fails unless this file is there
 * FAULT_CALL   what fails: "fdatasync" or "pwrite"
 * FAULT_FILE   how the file's name ends: ".seg" or ".seg.tmp"
 * FAULT_NTH    which call of these, counted from 1 since the file FAULT_ARM is there
 * FAULT_TIMES  how many in a row
 * FAULT_ERRNO  with which error; 0 for a write that writes half of what it should
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static int calls;

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* The name of a segment or of one being made; empty for any other file. */
static void segment_name(int fd, char *name, size_t size) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    const char *last = strrchr(path, '/');
    last = last ? last + 1 : path;
    int ours = ends_with(last, ".seg") || ends_with(last, ".seg.tmp");
    snprintf(name, size, "%s", ours ? last : "");
}

static void note(const char *call, const char *name, const char *result) {
    char line[512];
    int n = snprintf(line, sizeof line, "%s %s %s\n", call, name, result);
    int fd = open(getenv("FAULT_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, n) != n) abort();
    close(fd);
}

/* Whether this call fails, and how: -1 for no, else the error number. */
static int fault(const char *call, int fd, char *name, size_t size) {
    segment_name(fd, name, size);
    const char *which = getenv("FAULT_CALL"), *file = getenv("FAULT_FILE"), *arm = getenv("FAULT_ARM");
    if (!*name || !which || !file || !arm || !getenv("FAULT_LOG")) return -1;
    if (strcmp(which, call) != 0 || !ends_with(name, file) || access(arm, F_OK) != 0) return -1;
    calls++;
    int first = number("FAULT_NTH");
    return calls >= first && calls < first + number("FAULT_TIMES") ? number("FAULT_ERRNO") : -1;
}

int fdatasync(int fd) {
    static int (*real)(int);
    char name[256];
    pthread_mutex_lock(&one_at_a_time);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int error = fault("fdatasync", fd, name, sizeof name);
    if (*name && getenv("FAULT_LOG")) note("fdatasync", name, error < 0 ? "ok" : "failed");
    pthread_mutex_unlock(&one_at_a_time);
    if (error < 0) return real(fd);
    errno = error;
    return -1;
}

static ssize_t write_at(int fd, const void *bytes, size_t count, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    char name[256];
    pthread_mutex_lock(&one_at_a_time);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    int error = fault("pwrite", fd, name, sizeof name);
    if (*name && getenv("FAULT_LOG")) note("pwrite", name, error < 0 ? "ok" : "failed");
    pthread_mutex_unlock(&one_at_a_time);
    if (error < 0) return real(fd, bytes, count, offset);
    if (error == 0) return real(fd, bytes, count / 2 ? count / 2 : count, offset);
    errno = error;
    return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    return write_at(fd, bytes, count, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    return write_at(fd, bytes, count, offset);
}
