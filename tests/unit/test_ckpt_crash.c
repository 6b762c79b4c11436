/* test_ckpt_crash.c -- no crash loses a checkpoint.
 *
 * The writer's calls are logged while they really happen.  Then every prefix
 * of the log is a crash, and after it the disk holds what was fsynced plus
 * any subset of the rest: names and their order by subsets (metadata that a
 * file system may reorder), data of unsynced files not at all, half, as
 * zeroes, or all.  From each such disk `auto` must load the state of the last
 * save that reported success, or of the one under way.  That the model has
 * teeth is a test too: with fsyncs taken out of the log it must complain.
 * Reference: reliability.md 4.9, finding 7. */
#include "tests/unit/ckpt_small.h"

enum { NEVENT = 600, NNODE = 100, NENTRY = 200, DATA = 4096, BITS = 9 };

/* ---- the log ---- */

typedef enum Kind { LINK, RENAME, UNLINK, WRITE, SYNC, SYNC_DIR, DONE } Kind;
typedef struct Event {
    Kind kind;
    int dir, node;                        /* inodes */
    char from[40], to[40];                /* names in dir */
    size_t n;
    char data[160];
} Event;
static Event log_[NEVENT];
static int nlog;

typedef struct Entry { int dir, node; char name[40]; } Entry;
typedef struct Tree { int n; Entry entry[NENTRY]; } Tree;
static Tree live;
static int nnode, fd_node[1024];
static bool node_is_dir[NNODE];

static int tree_find(const Tree *t, int dir, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (t->entry[i].dir == dir && !strcmp(t->entry[i].name, name))
            return i;
    return -1;
}

static void tree_drop(Tree *t, int dir, const char *name)
{
    int i = tree_find(t, dir, name);
    if (i >= 0)
        t->entry[i] = t->entry[--t->n];
}

static void tree_link(Tree *t, int dir, const char *name, int node)
{
    tree_drop(t, dir, name);
    assert_true(t->n < NENTRY);
    Entry *e = &t->entry[t->n++];
    e->dir = dir, e->node = node;
    snprintf(e->name, sizeof e->name, "%s", name);
}

/* A name relation only: an inode may live without a name, as on a disk. */
static void event_apply(Tree *t, const Event *e)
{
    if (e->kind == LINK)
        tree_link(t, e->dir, e->to, e->node);
    if (e->kind == UNLINK || e->kind == RENAME)
        tree_drop(t, e->dir, e->from);
    if (e->kind == RENAME)
        tree_link(t, e->dir, e->to, e->node);
}

/* Folder and name of a path below root/log; inode 0 is that folder. */
static int resolve(const char *path, const char **name)
{
    const char *rest = path + strlen(root) + strlen("/log/");
    const char *slash = strchr(rest, '/');
    char first[40];
    *name = slash ? slash + 1 : rest;
    if (!slash)
        return 0;
    snprintf(first, sizeof first, "%.*s", (int)(slash - rest), rest);
    return live.entry[tree_find(&live, 0, first)].node;
}

static Event *event_add(Kind k, int dir, int node, const char *from,
                        const char *to)
{
    assert_true(nlog < NEVENT);
    Event *e = &log_[nlog++];
    *e = (Event){ .kind = k, .dir = dir, .node = node };
    snprintf(e->from, sizeof e->from, "%s", from);
    snprintf(e->to, sizeof e->to, "%s", to);
    event_apply(&live, e);
    return e;
}

static int node_of(const char *path)
{
    const char *name;
    int dir = resolve(path, &name);
    return live.entry[tree_find(&live, dir, name)].node;
}

static int log_create(void *arg, const char *path)
{
    const char *name;
    int dir = resolve(path, &name);
    int fd = dpc_disk.create(arg, path);
    assert_true(fd >= 0 && fd < 1024 && nnode + 1 < NNODE);
    fd_node[fd] = ++nnode;
    event_add(LINK, dir, nnode, "", name);
    return fd;
}

static ssize_t log_write(void *arg, int fd, const void *p, size_t n)
{
    Event *e = event_add(WRITE, -1, fd_node[fd], "", "");
    e->n = n < sizeof e->data ? n : sizeof e->data;   /* short ones are legal */
    memcpy(e->data, p, e->n);
    return dpc_disk.write(arg, fd, p, e->n);
}

static int log_fsync(void *arg, int fd)
{
    (void)arg;
    event_add(SYNC, -1, fd_node[fd], "", "");
    return 0;
}

static int log_fsync_dir(void *arg, const char *path)
{
    bool top = strlen(path) == strlen(root) + strlen("/log");
    (void)arg;
    event_add(SYNC_DIR, top ? 0 : node_of(path), 0, "", "");
    return 0;
}

static int log_rename(void *arg, const char *from, const char *to)
{
    const char *a, *b;
    int dir = resolve(from, &a);
    assert_int_equal(resolve(to, &b), dir);
    int r = dpc_disk.rename(arg, from, to);
    if (r == 0)
        event_add(RENAME, dir, node_of(from), a, b);
    return r;
}

static int log_unlink(void *arg, const char *path)
{
    const char *name;
    int dir = resolve(path, &name), r = dpc_disk.unlink(arg, path);
    if (r == 0)
        event_add(UNLINK, dir, 0, name, "");
    return r;
}

static int log_rmdir(void *arg, const char *path)
{
    const char *name;
    int dir = resolve(path, &name), node = node_of(path);
    int r = dpc_disk.rmdir(arg, path);
    if (r == 0)
        event_add(UNLINK, dir, node, name, "");
    return r;
}

static int log_mkdir(void *arg, const char *path)
{
    const char *name;
    int r = dpc_disk.mkdir(arg, path);
    if (r)
        return r;
    int dir = resolve(path, &name);
    node_is_dir[++nnode] = true;
    event_add(LINK, dir, nnode, "", name);
    return 0;
}

static int log_close(void *arg, int fd) { return dpc_disk.close(arg, fd); }
static int64_t log_space(void *a, const char *p) { (void)a, (void)p;
                                                   return INT64_MAX; }
static const DpcDisk log_disk = {
    NULL, log_create, log_write, log_fsync, log_close, log_fsync_dir,
    log_rename, log_unlink, log_mkdir, log_rmdir, log_space,
};

/* Four saves: a first, a second, the same step again, one that prunes. */
static const int step[] = { 1, 2, 2, 3 };

static void log_make(void)
{
    char dir[100];
    snprintf(dir, sizeof dir, "%s/log", root);
    wipe(dir);
    nlog = nnode = 0;
    live.n = 0;
    memset(node_is_dir, 0, sizeof node_is_dir);
    node_is_dir[0] = true;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(save(&log_disk, dir, step[i], i + 1, i == 3), DPC_OK);
        event_add(DONE, -1, 0, "", "");
    }
    assert_int_equal(recover(dir), 4);
}

/* ---- crashes ---- */

typedef struct Model { bool no_sync, no_sync_dir; } Model;
typedef struct Tally { int disks, lost, broken, astray; } Tally;

static bool covered(const Model *m, int i, int end)
{
    const Event *e = &log_[i];
    for (int k = i + 1; k < end; k++) {
        const Event *f = &log_[k];
        if (e->kind == WRITE && f->kind == SYNC && f->node == e->node &&
            !m->no_sync)
            return true;
        if (e->kind != WRITE && f->kind == SYNC_DIR && f->dir == e->dir &&
            !m->no_sync_dir)
            return true;
        /* a folder whose removal lasts takes its entries along */
        if (e->kind == UNLINK && f->kind == UNLINK && f->node == e->dir &&
            e->dir > 0 && covered(m, k, end))
            return true;
    }
    return false;
}

typedef enum Loss { ALL, NONE, HALF, ZERO, NLOSS } Loss;

/* Content of a file after the crash. */
static size_t content(const Model *m, int node, int end, Loss loss, char *out)
{
    size_t n = 0, keep = 0;
    for (int i = 0; i < end; i++) {
        if (log_[i].kind != WRITE || log_[i].node != node)
            continue;
        memcpy(out + n, log_[i].data, log_[i].n);
        n += log_[i].n;
        if (covered(m, i, end))
            keep = n;
        assert_true(n < DATA - 160);
    }
    if (loss == ZERO)
        memset(out + keep, 0, n - keep);
    return loss == NONE ? keep : loss == HALF ? keep + (n - keep) / 2 : n;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}

/* Writes the disk below `dir` (NULL: only hashes it). */
static uint64_t disk_write(const Model *m, const Tree *t, int end, Loss loss,
                           int inode, const char *dir)
{
    static char data[DATA];
    uint64_t sum = 0;
    char path[300];
    for (int i = 0; i < t->n; i++) {
        const Entry *e = &t->entry[i];
        if (e->dir != inode)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir ? dir : "", e->name);
        uint64_t h = mix(0xcbf29ce484222325u, e->name, strlen(e->name));
        if (node_is_dir[e->node]) {
            if (dir)
                mkdir(path, 0777);
            h ^= 31 * disk_write(m, t, end, loss, e->node, dir ? path : NULL);
        } else {
            size_t n = content(m, e->node, end, loss, data);
            h = mix(h, data, n);
            FILE *f = dir ? fopen(path, "w") : NULL;
            if (f) {
                fwrite(data, 1, n, f);
                fclose(f);
            }
        }
        sum += h * 0x9e3779b97f4a7c15u;   /* in any order */
    }
    return sum;
}

static uint64_t seen[1 << 16];

static bool first_time(uint64_t h)
{
    size_t i = h & 0xffff;
    for (; seen[i] && seen[i] != h; i = (i + 1) & 0xffff)
        ;
    bool is_new = !seen[i];
    seen[i] = h;
    return is_new;
}

/* Names DIR/latest what is not there, or not what was saved last? */
static bool latest_astray(int done)
{
    char path[200], name[40] = "", old[300];
    snprintf(path, sizeof path, "%s/latest", disk_dir);
    FILE *f = fopen(path, "r");
    if (!f)
        return done > 0;
    bool read = fscanf(f, "%39s", name) == 1;
    fclose(f);
    snprintf(path, sizeof path, "%s/%s", disk_dir, name);
    snprintf(old, sizeof old, "%s.old", path);
    int at = atoi(name + strcspn(name, "0123456789"));
    bool mine = (done > 0 && at == step[done - 1]) ||
                (done < 4 && at == step[done]);
    return !read || !mine || (access(path, F_OK) && access(old, F_OK));
}

static void disk_judge(const Model *m, const Tree *t, int end, Loss loss,
                       int done, Tally *tally)
{
    uint64_t h = disk_write(m, t, end, loss, 0, NULL) * 8 + (uint64_t)done;
    if (!first_time(h | 1ull << 63))
        return;
    wipe(disk_dir);
    disk_write(m, t, end, loss, 0, disk_dir);
    int got = recover(disk_dir);
    tally->disks++;
    tally->broken += got < 0;
    tally->astray += latest_astray(done);
    tally->lost += got >= 0 && got != done && got != done + 1;
}

/* All disks that a crash after `end` events may leave. */
static void crash(const Model *m, int end, Tally *tally)
{
    int open[NEVENT], nopen = 0, done = 0;
    for (int i = 0; i < end; i++) {
        done += log_[i].kind == DONE;
        if (log_[i].kind <= UNLINK && !covered(m, i, end))
            open[nopen++] = i;
    }
    int bits = nopen < BITS ? nopen : BITS;   /* the youngest, one by one */
    for (int set = 0; set < 1 << bits; set++) {
        Tree t = { 0 };
        int k = 0;
        for (int i = 0; i < end; i++) {
            bool is_open = k < nopen && open[k] == i;
            int bit = k - (nopen - bits);
            k += is_open;
            if (!is_open || bit < 0 || set >> bit & 1)
                event_apply(&t, &log_[i]);
        }
        for (int loss = 0; loss < NLOSS; loss++)
            disk_judge(m, &t, end, (Loss)loss, done, tally);
    }
}

static Tally crashes(Model m)
{
    Tally t = { 0 };
    memset(seen, 0, sizeof seen);
    bool sound = !m.no_sync && !m.no_sync_dir;
    for (int end = 0; end <= nlog && (sound || t.lost + t.broken == 0); end++)
        crash(&m, end, &t);
    return t;
}

static void every_crash_leaves_the_old_or_the_new_state(void **state)
{
    (void)state;
    log_make();
    Tally t = crashes((Model){ 0 });
    print_message("%d calls, %d different disks\n", nlog, t.disks);
    assert_true(t.disks > 50);
    assert_int_equal(t.lost, 0);
    assert_int_equal(t.broken, 0);
    assert_int_equal(t.astray, 0);
}

static void without_fsync_of_files_the_model_complains(void **state)
{
    (void)state;
    log_make();
    Tally t = crashes((Model){ .no_sync = true });
    assert_true(t.lost + t.broken > 0);   /* broken: none is whole */
}

static void without_fsync_of_folders_the_model_complains(void **state)
{
    (void)state;
    log_make();
    Tally t = crashes((Model){ .no_sync_dir = true });
    assert_true(t.lost + t.broken > 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_crash_leaves_the_old_or_the_new_state),
        T(without_fsync_of_files_the_model_complains),
        T(without_fsync_of_folders_the_model_complains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
