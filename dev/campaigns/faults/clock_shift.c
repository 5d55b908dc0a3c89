/* Loaded before the C library: the wall clock of a process is an hour earlier from the moment a file appears. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
    const char *file = getenv("CLOCK_SHIFT_FILE");
    return file && access(file, F_OK) == 0 ? -3600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (status == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += shift();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return status;
}

time_t time(time_t *where)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (where)
        *where = precise.tv_sec;
    return precise.tv_sec;
}
