// SPDX-License-Identifier: Apache-2.0
// Tests a rendezvous that strangers join. A peer that does not prove the secret, or cannot take
// part, is turned away without affecting others. Silence, floods and a lack of descriptors delay
// nobody. A peer's description of itself is safe for a terminal.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"
#include "support/processes.h"
#include "support/test.h"

static const unsigned char secret[SW_SECRET_BYTES] = "sixteen of them", other[SW_SECRET_BYTES];

static struct sw_tcp_options options_of(int rank, int size, int port, double deadline_s)
{
    return (struct sw_tcp_options){.rank = rank,
                                   .size = size,
                                   .host = "127.0.0.1",
                                   .port = port,
                                   .deadline_s = deadline_s,
                                   .secret = secret,
                                   .job = "one"};
}

/* ---- a host with two addresses ---- */

static int two_ports[2]; /* of "two.addresses" */
static struct sockaddr_in two_addresses[2];
static struct addrinfo two_names[2];

/* Takes the place of libc's in this program. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!node || strcmp(node, "two.addresses") != 0) {
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(node, service, hints, out);
    }
    for (int i = 0; i < 2; i++) {
        two_addresses[i] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)two_ports[i])};
        two_addresses[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        two_names[i] = (struct addrinfo){.ai_family = AF_INET,
                                         .ai_socktype = SOCK_STREAM,
                                         .ai_addr = (struct sockaddr *)(void *)&two_addresses[i],
                                         .ai_addrlen = sizeof two_addresses[i],
                                         .ai_next = i == 0 ? &two_names[1] : NULL};
    }
    *out = two_names;
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    void (*real)(struct addrinfo *);
    if (list != two_names) {
        *(void **)&real = dlsym(RTLD_NEXT, "freeaddrinfo");
        real(list);
    }
}

/* A rank in its own thread, which meets the others, gathers a word from each, and leaves. */
struct member {
    struct sw_tcp_options options;
    pthread_t thread;
    sw_status st;
    int32_t words[8];
    char message[1024];
};

static sw_status take_part(struct member *m)
{
    struct sw_transport transport;
    sw_comm *comm = NULL;
    const int32_t word = 100 + m->options.rank;
    SW_TRY(sw_tcp_open(&m->options, &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    const sw_status st = sw_comm_all_gather(comm, &word, m->words, sizeof word, "a word");
    sw_comm_close(comm, st < 0);
    return st;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    m->st = take_part(m);
    snprintf(m->message, sizeof m->message, "%s", sw_error_message());
    return NULL;
}

static void begin(struct member *m)
{
    assert_int_equal(pthread_create(&m->thread, NULL, member_main, m), 0);
}

static void end_well(struct member *m)
{
    pthread_join(m->thread, NULL);
    if (m->st < 0) {
        fail_msg("rank %d: %s", m->options.rank, m->message);
    }
    for (int r = 0; r < m->options.size; r++) {
        assert_int_equal(m->words[r], 100 + r);
    }
}

static void expect_turned_away(struct sw_tcp_options options, const char *why)
{
    struct member m = {.options = options};
    member_main(&m);
    assert_int_equal(m.st, SW_E_PEER);
    if (!strstr(m.message, why)) {
        fail_msg("wanted \"%s\", got \"%s\"", why, m.message);
    }
}

static void expect_closed(int fd)
{
    char byte;
    const struct timeval patience = {.tv_sec = 60};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_true(recv(fd, &byte, 1, 0) == 0 || errno == ECONNRESET);
    close(fd);
}

/* Follows the protocol without the secret: it gets a challenge, and no reply to its answer. */
static void pretend(int port, bool old_words)
{
    const struct sw_tcp_self self = {.rank = 1, .about = {.size = 2, .port = 7, .host = "here"}};
    const uint8_t nonce[SW_NONCE_BYTES] = {0};
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer = {.about = self.about};
    struct sw_tcp_hello hello;
    const int fd = test_knock(port);
    if (old_words) { /* the old protocol, from before there were secrets */
        const struct {
            uint32_t magic;
            int32_t rank, size;
            uint32_t port;
            char host[64];
        } words = {0x53574331, 1, 2, 7, "here"};
        assert_int_equal(send(fd, &words, sizeof words, MSG_NOSIGNAL), sizeof words);
        expect_closed(fd);
        return;
    }
    sw_tcp_greet(&self, 0, nonce, &hello, &greeting);
    assert_int_equal(send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    assert_int_equal(recv(fd, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    memcpy(answer.proof, challenge.proof, sizeof answer.proof); /* replays the other side's proof */
    assert_int_equal(send(fd, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    expect_closed(fd);
}

static void strangers_are_turned_away_and_the_meeting_goes_on(void **state)
{
    (void)state;
    const int port = test_free_port();
    struct member first = {.options = options_of(0, 2, port, 60)};
    struct member second = {.options = options_of(1, 2, port, 60)};
    begin(&first);
    pretend(port, true);
    pretend(port, false);
    struct sw_tcp_options wrong = second.options;
    wrong.secret = other;
    expect_turned_away(wrong, "does not prove the secret of this job");
    wrong.secret = NULL;
    expect_turned_away(wrong, "none is set here");
    wrong = second.options;
    wrong.job = "two";
    expect_turned_away(wrong, "does not prove the secret of this job");
    wrong = second.options;
    wrong.size = 3;
    expect_turned_away(wrong, "rank 1 counts 3 ranks, rank 0 counts 2");
    wrong.rank = 2;
    expect_turned_away(wrong, "rank 2 counts 3 ranks, rank 0 counts 2");
    begin(&second);
    end_well(&first);
    end_well(&second);
}

/* Nonces are not reused, so a recorded handshake is worthless. */
static void what_was_heard_proves_nothing_later(void **state)
{
    (void)state;
    struct sw_tcp_self listener = {.rank = 0, .about = {.size = 2, .port = 1}},
                       dialer = {.rank = 1, .about = {.size = 2, .port = 7, .host = "h"}};
    const uint8_t nonces[3][SW_NONCE_BYTES] = {{1}, {2}, {3}};
    struct sw_tcp_hello there, here;
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer;
    struct sw_tcp_about about;
    struct sw_tcp_verdict verdict;
    listener.secret.known = dialer.secret.known = true;
    sw_tcp_greet(&dialer, 0, nonces[0], &there, &greeting);
    assert_true(sw_tcp_hear_greeting(&listener, &greeting, nonces[1], &here, &challenge));
    assert_true(sw_tcp_hear_challenge(&dialer, &there, &challenge, &answer));
    assert_int_equal(sw_tcp_hear_answer(&listener, &here, &answer, &about, &verdict),
                     SW_TCP_MEMBER);
    assert_true(sw_tcp_hear_greeting(&listener, &greeting, nonces[2], &here, &challenge));
    assert_int_equal(sw_tcp_hear_answer(&listener, &here, &answer, &about, &verdict),
                     SW_TCP_STRANGER);
    answer.about.port++;
    assert_int_equal(sw_tcp_hear_answer(&listener, &there, &answer, &about, &verdict),
                     SW_TCP_STRANGER);
    greeting.to = 1; /* addressed to another rank */
    assert_false(sw_tcp_hear_greeting(&listener, &greeting, nonces[1], &here, &challenge));
}

/* The deadline of the rendezvous is shorter than the limit for one silent connection. */
static void silent_connections_hold_nobody_up(void **state)
{
    (void)state;
    enum { SILENT = 400 }; /* more than there are places */
    int fds[SILENT];
    const int port = test_free_port();
    struct member members[3];
    assert_int_equal(sw_allow_files(SILENT + 100), SW_OK);
    for (int r = 0; r < 3; r++) {
        members[r] = (struct member){.options = options_of(r, 3, port, 8)};
    }
    begin(&members[0]);
    for (int i = 0; i < SILENT; i++) {
        fds[i] = test_knock(port);
    }
    assert_int_equal(send(fds[SILENT - 1], "GET", 3, MSG_NOSIGNAL), 3);
    begin(&members[1]);
    begin(&members[2]);
    for (int r = 0; r < 3; r++) {
        end_well(&members[r]);
    }
    for (int i = 0; i < SILENT; i++) {
        close(fds[i]);
    }
}

static void tell_pipe(void *ctx, enum sw_log_level level, const char *text)
{
    (void)level;
    (void)!write(*(const int *)ctx, text, strlen(text));
}

static _Noreturn void be_short_of_files(struct member *m, int line)
{
    const struct rlimit few = {80, 80};
    setrlimit(RLIMIT_NOFILE, &few);
    sw_log_set_level(SW_LOG_WARN);
    sw_log_set_sink(tell_pipe, &line);
    member_main(m);
    _exit(m->st < 0 || m->words[1] != 101);
}

static void a_listener_without_descriptors_waits_says_so_and_goes_on(void **state)
{
    (void)state;
    enum { MANY = 120 };
    int fds[MANY], line[2], status;
    char said[512] = "";
    const int port = test_free_port();
    struct member first = {.options = options_of(0, 2, port, 60)};
    struct member second = {.options = options_of(1, 2, port, 60)};
    assert_int_equal(pipe(line), 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        be_short_of_files(&first, line[1]);
    }
    close(line[1]);
    for (int i = 0; i < MANY; i++) {
        fds[i] = test_knock(port);
    }
    assert_true(read(line[0], said, sizeof said - 1) > 0);
    if (!strstr(said, "rank 0 cannot accept connections for now: Too many open files")) {
        fail_msg("said: %s", said);
    }
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    begin(&second);
    end_well(&second);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(line[0]);
}

/* Acts as a rank of the job, up to its answer. */
static int join_by_hand(int port, int rank, int size)
{
    struct sw_tcp_self self = {.rank = rank, .about = {.size = size, .port = 7, .host = "here"}};
    const uint8_t nonce[SW_NONCE_BYTES] = {9};
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer;
    struct sw_tcp_hello hello;
    const int fd = test_knock(port);
    self.secret.known = true;
    memcpy(self.secret.key, secret, sizeof self.secret.key);
    strcpy(self.secret.job, "one");
    sw_tcp_greet(&self, 0, nonce, &hello, &greeting);
    assert_int_equal(send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    assert_int_equal(recv(fd, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    assert_true(sw_tcp_hear_challenge(&self, &hello, &challenge, &answer));
    assert_int_equal(send(fd, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    return fd;
}

/* A rank that was there and left before the others came may come again, but not while it is
 * there. */
static void a_rank_that_left_may_come_again(void **state)
{
    (void)state;
    const int port = test_free_port();
    struct member members[3];
    for (int r = 0; r < 3; r++) {
        members[r] = (struct member){.options = options_of(r, 3, port, 60)};
    }
    begin(&members[0]);
    const int fd = join_by_hand(port, 1, 3);
    expect_turned_away(members[1].options, "rank 1 is already connected, from here");
    close(fd);
    begin(&members[1]);
    begin(&members[2]);
    for (int r = 0; r < 3; r++) {
        end_well(&members[r]);
    }
}

/* Finds the local addresses of listeners on a port of this machine in /proc. */
static void expect_loopback_listener(int port, int *out_n)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    static const char *const own[] = {"0100007F", "00000000000000000000000001000000"};
    for (int i = 0; i < 2; i++) {
        char line[512], address[64];
        unsigned at, state;
        FILE *file = fopen(tables[i], "r");
        while (file && fgets(line, sizeof line, file)) {
            if (sscanf(line, " %*d: %63[0-9A-F]:%x %*s %x", address, &at, &state) == 3 &&
                state == 0x0A && (int)at == port) {
                assert_string_equal(address, own[i]);
                ++*out_n;
            }
        }
        if (file) {
            fclose(file);
        }
    }
}

/* A listener whose queue is full: the system swallows what comes besides. */
static int open_hole(int fds[4])
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t len = sizeof own;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fds[0], (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(listen(fds[0], 0), 0);
    assert_int_equal(getsockname(fds[0], (struct sockaddr *)&own, &len), 0);
    for (int i = 1; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
        connect(fds[i], (struct sockaddr *)&own, sizeof own);
    }
    return ntohs(own.sin_port);
}

static void an_address_that_swallows_packets_does_not_delay_the_others(void **state)
{
    (void)state;
    const int port = test_free_port();
    int fds[4];
    struct member first = {.options = options_of(0, 2, port, 15)},
                  second = {.options = options_of(1, 2, port, 15)};
    two_ports[0] = open_hole(fds);
    two_ports[1] = port;
    second.options.host = "two.addresses";
    begin(&first);
    begin(&second);
    end_well(&first);
    end_well(&second);
    for (int i = 0; i < 4; i++) {
        close(fds[i]);
    }
}

static void a_loopback_master_listens_on_loopback_only(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "localhost"};
    for (int i = 0; i < 4; i++) {
        const int port = test_free_port();
        int n = 0;
        struct member first = {.options = options_of(0, 2, port, 60)}, second;
        first.options.host = hosts[i / 2];
        first.options.secret = i % 2 ? secret : NULL;
        second = (struct member){.options = first.options};
        second.options.rank = 1;
        begin(&first);
        for (int k = 0; k < 3000 && n == 0; k++) {
            expect_loopback_listener(port, &n);
            usleep(2000);
        }
        assert_int_equal(n, 1);
        begin(&second);
        end_well(&first);
        end_well(&second);
    }
    struct sw_tcp_options far = options_of(1, 2, 7, 1);
    struct sw_transport transport;
    far.host = "203.0.113.7";
    far.secret = NULL;
    assert_int_equal(sw_tcp_open(&far, &transport), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "meet on the loopback of one machine only"));
}

static void *give_up_rudely(void *arg)
{
    struct member *m = arg;
    struct sw_transport transport;
    m->st = sw_tcp_open(&m->options, &transport);
    if (m->st >= 0) {
        const sw_status why = SW_FAIL(SW_E_IO, "\033]0;yours\007");
        transport.abort(transport.ctx, why);
        transport.close(transport.ctx, true);
    }
    return NULL;
}

static void a_peers_words_do_not_reach_a_terminal_as_they_are(void **state)
{
    (void)state;
    const int port = test_free_port();
    struct member first = {.options = options_of(0, 2, port, 60)};
    struct member second = {.options = options_of(1, 2, port, 60)};
    begin(&first);
    give_up_rudely(&second);
    assert_int_equal(second.st, SW_OK);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.st, SW_E_PEER);
    if (!strstr(first.message, "cannot go on: \\x1b]0;yours\\x07")) {
        fail_msg("%s", first.message);
    }
    /* the proof also covers the host name */
    struct sw_tcp_self dialer = {.rank = 1, .about = {.size = 2, .port = 7}}, listener = dialer;
    const uint8_t nonce[SW_NONCE_BYTES] = {0};
    struct sw_tcp_hello there, here;
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer;
    struct sw_tcp_about about;
    struct sw_tcp_verdict verdict;
    listener.rank = 0;
    /* a host name without a terminator is refused, too */
    memset(dialer.about.host, '\033', sizeof dialer.about.host);
    sw_tcp_greet(&dialer, 0, nonce, &there, &greeting);
    assert_true(sw_tcp_hear_greeting(&listener, &greeting, nonce, &here, &challenge));
    assert_true(sw_tcp_hear_challenge(&dialer, &there, &challenge, &answer));
    assert_int_equal(sw_tcp_hear_answer(&listener, &here, &answer, &about, &verdict),
                     SW_TCP_MEMBER);
    assert_int_equal(strspn(about.host, "\\x1b"), strlen(about.host));
    assert_true(strlen(about.host) > 0);
}

/* ---- the connections of a group ---- */

struct party {
    pthread_t thread;
    int fds[2], out[2];
    char hosts[2][SW_TCP_HOST_CAP];
    struct sw_job_secret secret;
    struct sw_group_options group;
    double deadline_s;
    uint32_t port_of_first;
    struct party *second; /* of the first one: it starts the second when it listens */
    sw_status st;
    char message[1024];
};

static void *party_main(void *arg);

/* The first one gets the port of the second one from nowhere, as it does not connect to it. */
static sw_status swap_ports(void *ctx, uint32_t mine, uint32_t *out_ports)
{
    struct party *p = ctx;
    out_ports[0] = p->second ? mine : p->port_of_first;
    if (p->second) {
        p->second->port_of_first = mine;
        SW_ASSERT(pthread_create(&p->second->thread, NULL, party_main, p->second) == 0);
    }
    return SW_OK;
}

static void *party_main(void *arg)
{
    struct party *p = arg;
    const struct sw_tcp_party party = {.group = &p->group,
                                       .rank = p->second ? 0 : 1,
                                       .names = (const char *const[]){"data_00", "data_01"},
                                       .deadline_s = p->deadline_s,
                                       .secret = &p->secret,
                                       .fds = p->fds,
                                       .hosts = p->hosts,
                                       .swap_ports = swap_ports,
                                       .ctx = p};
    if (!p->second) { /* a stranger knocks before the member does */
        pretend((int)p->port_of_first, false);
    }
    p->st = sw_tcp_meet_group(&party, p->out);
    snprintf(p->message, sizeof p->message, "%s", p->st < 0 ? sw_error_message() : "");
    return NULL;
}

/* Two ends of a connection between ranks that have met. */
static void connect_pair(int *first, int *second)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    *second = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(*second, (struct sockaddr *)&at, sizeof at), 0);
    *first = accept(listener, NULL, NULL);
    assert_true(*first >= 0);
    close(listener);
}

static void meet_as_group(struct party *first, struct party *second)
{
    static const int ranks[] = {0, 1};
    struct party *both[] = {first, second};
    for (int i = 0; i < 2; i++) {
        *both[i] = (struct party){.fds = {-1, -1},
                                  .hosts = {"here", "here"},
                                  .deadline_s = 20,
                                  .secret = {.known = true, .job = "one"},
                                  .group = {.number = 3, .ranks = ranks, .n = 2}};
        memcpy(both[i]->secret.key, secret, sizeof secret);
    }
    first->second = second;
    connect_pair(&first->fds[1], &second->fds[0]);
}

static void end_group(struct party *first, struct party *second)
{
    party_main(first);
    pthread_join(second->thread, NULL);
    struct party *both[] = {first, second};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            close(both[i]->fds[k]);
            if (both[i]->st >= 0 && both[i]->out[k] >= 0) {
                close(both[i]->out[k]);
            }
        }
    }
}

static void a_connection_of_a_group_needs_the_same_proof(void **state)
{
    (void)state;
    struct party first, second;
    meet_as_group(&first, &second); /* beside a stranger */
    end_group(&first, &second);
    assert_string_equal(first.message, "");
    assert_string_equal(second.message, "");
    for (int wrong = 0; wrong < 3; wrong++) {
        static const char *const says[] = {"does not prove the secret of this job",
                                           "does not prove the secret of this job",
                                           "rank 1 connects for group 4, rank 0 for group 3"};
        meet_as_group(&first, &second);
        second.secret.key[0] ^= wrong == 0;
        second.secret.job[0] ^= wrong == 1;
        second.group.number += wrong == 2;
        first.deadline_s = 0.2;
        end_group(&first, &second);
        assert_int_equal(first.st, SW_E_PEER);
        assert_int_equal(second.st, SW_E_PEER);
        if (!strstr(first.message, "data_00 waited 0.2 s for data_01 to connect") ||
            !strstr(second.message, says[wrong])) {
            fail_msg("\"%s\", \"%s\"", first.message, second.message);
        }
    }
}

static int be_quiet(char **argv)
{
    (void)argv;
    sw_log_set_level(SW_LOG_ERROR);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(strangers_are_turned_away_and_the_meeting_goes_on),
    cmocka_unit_test(what_was_heard_proves_nothing_later),
    cmocka_unit_test(silent_connections_hold_nobody_up),
    cmocka_unit_test(a_listener_without_descriptors_waits_says_so_and_goes_on),
    cmocka_unit_test(a_rank_that_left_may_come_again),
    cmocka_unit_test(a_connection_of_a_group_needs_the_same_proof),
    cmocka_unit_test(an_address_that_swallows_packets_does_not_delay_the_others),
    cmocka_unit_test(a_loopback_master_listens_on_loopback_only),
    cmocka_unit_test(a_peers_words_do_not_reach_a_terminal_as_they_are),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = be_quiet};
