/* glibc 2.30 added waits that name their clock. A libstdc++ that was configured with such a glibc uses them in every
   std::condition_variable::wait_for, timed mutex and semaphore, whatever headers it is compiled with. Here the time left
   on that clock is turned into a time on the system clock, as libstdc++ did before; it checks the right clock itself
   when a wait ends. (A step of the system clock during a wait shows as a wait that is too long or ends early.) */

#define HIDDEN __attribute__((visibility("hidden")))
#define REALTIME 0
#define BILLION 1000000000L

struct timespec {
    long seconds;
    long nanoseconds;
};

extern int clock_gettime(int, struct timespec *);
extern int pthread_cond_timedwait(void *, void *, const struct timespec *);
extern int pthread_mutex_timedlock(void *, const struct timespec *);
extern int pthread_rwlock_timedrdlock(void *, const struct timespec *);
extern int pthread_rwlock_timedwrlock(void *, const struct timespec *);
extern int sem_timedwait(void *, const struct timespec *);

static const struct timespec *on_system_clock(int clock, const struct timespec *until, struct timespec *result)
{
    struct timespec then, now;
    if (clock == REALTIME || clock_gettime(clock, &then) != 0 || clock_gettime(REALTIME, &now) != 0)
        return until;
    result->seconds = now.seconds + until->seconds - then.seconds;
    result->nanoseconds = now.nanoseconds + until->nanoseconds - then.nanoseconds;
    for (; result->nanoseconds < 0; result->nanoseconds += BILLION)
        result->seconds--;
    for (; result->nanoseconds >= BILLION; result->nanoseconds -= BILLION)
        result->seconds++;
    return result;
}

HIDDEN int pthread_cond_clockwait(void *condition, void *mutex, int clock, const struct timespec *until)
{
    struct timespec time;
    return pthread_cond_timedwait(condition, mutex, on_system_clock(clock, until, &time));
}
HIDDEN int pthread_mutex_clocklock(void *mutex, int clock, const struct timespec *until)
{
    struct timespec time;
    return pthread_mutex_timedlock(mutex, on_system_clock(clock, until, &time));
}
HIDDEN int pthread_rwlock_clockrdlock(void *lock, int clock, const struct timespec *until)
{
    struct timespec time;
    return pthread_rwlock_timedrdlock(lock, on_system_clock(clock, until, &time));
}
HIDDEN int pthread_rwlock_clockwrlock(void *lock, int clock, const struct timespec *until)
{
    struct timespec time;
    return pthread_rwlock_timedwrlock(lock, on_system_clock(clock, until, &time));
}
HIDDEN int sem_clockwait(void *semaphore, int clock, const struct timespec *until)
{
    struct timespec time;
    return sem_timedwait(semaphore, on_system_clock(clock, until, &time));
}
