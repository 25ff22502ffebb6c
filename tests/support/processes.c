// SPDX-License-Identifier: Apache-2.0
// Programs that a test runs. test_said belongs to the thread that runs the tests.
#include "support/processes.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/scratch.h"
#include "support/test.h"

char test_said[16384];

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int test_system(const char *format, ...)
{
    char line[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return exit_status(system(line));
}

int test_shell(const char *line)
{
    const int status = test_system("cd %s && (%s) >said 2>&1 </dev/null", test_folder(), line);
    char *text = test_text("said");
    snprintf(test_said, sizeof test_said, "%s", text);
    sw_free(text);
    return status;
}

int test_run(const char *arguments)
{
    char line[8192];
    snprintf(line, sizeof line, "%s %s", test_spillway(), arguments);
    return test_shell(line);
}

void test_expect(const char *arguments, int status, const char *wanted)
{
    const int got = test_run(arguments);
    if (got != status || !strstr(test_said, wanted)) {
        fail_msg("%s: status %d, wanted %d; said \"%s\", wanted \"%s\"", arguments, got, status,
                 test_said, wanted);
    }
}

int test_exit_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return exit_status(status);
}

int test_free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    close(fd);
    return ntohs(a.sin_port);
}

int test_knock(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 3000; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
            return fd;
        }
        close(fd);
        usleep(10000);
    }
    fail_msg("nobody listens at port %d", port);
    return -1;
}
