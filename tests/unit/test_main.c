/* test_main.c -- the command line of an emitted binary, from outside.
 *
 * The program is its own subject: with TOY set it is the toy's binary. */
#include "tests/unit/toy.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static char self[4096], folder[] = "/tmp/dpc-test-main-XXXXXX";
static char text[1 << 16];                /* stdout and stderr of the last run */

/* Runs a shell command, "%" being this program; its exit code. */
static int run(const char *command)
{
    char line[8192];
    size_t n = (size_t)snprintf(line, sizeof line, "{ ");
    for (const char *p = command; *p; p++)
        n += (size_t)snprintf(line + n, sizeof line - n, *p == '%' ? "%s"
                              : "%.1s", *p == '%' ? self : p);
    snprintf(line + n, sizeof line - n, "; } 2>&1");
    FILE *f = popen(line, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    int rc = pclose(f);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : 128 + WTERMSIG(rc);
}

static void says(const char *what)
{
    if (!strstr(text, what))
        fail_msg("no \"%s\" in:\n%s", what, text);
}

static int start(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    unsetenv("TOY_RANKS");
    setenv("TOY", "1", 1);
    FILE *f = fopen("x.npy", "wb");
    assert_non_null(f);
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    const char *d = "{'descr': '<f4', 'fortran_order': False, "
                    "'shape': (64, 1), }";
    memcpy(head + 10, d, strlen(d));
    head[127] = '\n';
    fwrite(head, 1, sizeof head, f);
    for (int i = 0; i < 64; i++)
        fwrite(&(float){(float)(i * 37 % 64) / 64}, 4, 1, f);
    return fclose(f);
}

static int end(void **state)
{
    (void)state;
    char line[64];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return chdir("/") || system(line);
}

static bool has_mpirun(void)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    return run("command -v mpirun") == 0;
}

static void a_wrong_option_is_told_its_neighbour(void **state)
{
    (void)state;
    assert_int_equal(run("% train --stepz 3"), 2);
    says("unknown option '--stepz'; did you mean '--steps'?");
    assert_int_equal(run("% trian"), 2);
    says("unknown command 'trian'; did you mean 'train'?");
    assert_int_equal(run("% train --lr fast"), 2);
    says("'--lr fast': not a number");
    assert_int_equal(run("%"), 2);
}

static void help_lists_the_scalars_of_the_model(void **state)
{
    (void)state;
    assert_int_equal(run("% --help"), 0);
    says("learning rate (default: 0.1)");
    says("sample       runs draw");
    assert_int_equal(run("% --version --json"), 0);
    says("\"model\": \"toy\"");
}

static void training_learns_and_logs(void **state)
{
    (void)state;
    assert_int_equal(run("% train --data x.npy --out a --steps 100"), 0);
    says("step 100/100");
    assert_int_equal(run("tail -n 2 a/metrics.jsonl"), 0);
    says("\"step\":100,\"loss\":");
    assert_int_equal(run("% eval --data x.npy --out a --json --quiet"), 0);
    float loss = 9;
    assert_int_equal(sscanf(text, "{\"step\":100,\"loss\":%f", &loss), 1);
    assert_true(loss < 1e-3f);
}

static void a_resumed_run_equals_an_unbroken_one(void **state)
{
    (void)state;
    char whole[sizeof text];
    const char *hash = "sha256sum < %s/ckpt/step-00000012/model.safetensors";
    char line[128];
    assert_int_equal(run("% train --data x.npy --out b --steps 12 --quiet"),
                     0);
    snprintf(line, sizeof line, hash, "b");
    assert_int_equal(run(line), 0);
    memcpy(whole, text, sizeof whole);
    assert_int_equal(run("% train --data x.npy --out c --steps 5 --quiet"), 0);
    assert_int_equal(run("% train --data x.npy --out c --steps 12"), 0);
    says("resume  c/ckpt/step-00000005, step 5");
    snprintf(line, sizeof line, hash, "c");
    assert_int_equal(run(line), 0);
    assert_string_equal(text, whole);
}

static void weights_come_from_another_run(void **state)
{
    (void)state;
    assert_int_equal(run("% train --data x.npy --out w --steps 50 --quiet"),
                     0);
    assert_int_equal(run("% train --data x.npy --steps 1 --init-from w:ema"),
                     0);
    says("weights w: 1 tensors, averaged where there");
    assert_int_equal(run("% train --data x.npy --steps 1 --init-from v=w"),
                     1);
    says("\"v.*\"");
}

static void a_missing_input_names_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(run("% train"), 1);
    says("toy.lua:3: error: input 'x' has no source; give --data SPEC or "
         "--input x=FILE.npy");
    assert_int_equal(run("cp x.npy y.npy; % train --data y.npy"), 1);
    says("input 'x' is no field of 'y.npy', which has 'y'");
}

static void captions_become_pictures(void **state)
{
    (void)state;
    assert_int_equal(run("% sample --resume none --caption 'Red, boot' "
        "--caption shirt --output picture=p.npy --output picture=p.png"), 0);
    struct stat st;
    assert_int_equal(stat("p.npy", &st), 0);
    assert_int_equal(st.st_size, 128 + 4 * 64 * 4);
    float v[4 * 64];
    FILE *f = fopen("p.npy", "rb");
    fseek(f, 128, SEEK_SET);
    assert_int_equal(fread(v, 4, 4 * 64, f), 4 * 64);
    fclose(f);
    assert_float_equal(v[0], 0.3, 1e-6);  /* red 1 + boot 2 */
    assert_float_equal(v[64], 0.3, 1e-6); /* shirt 3 */
    assert_int_equal(stat("p.png", &st), 0);
    assert_int_equal(run("% sample --resume none --caption 'red boat'"), 1);
    says("does not know the word 'boat'; near are 'boot'");
}

static void a_nan_ends_the_run_and_names_the_op(void **state)
{
    (void)state;
    assert_int_equal(run("% train --data x.npy --out n --poison 7"), 7);
    says("toy.lua:11: log 'bad': first NaN");
    says("step 7 is not finite; nothing was saved");
    assert_int_equal(run("ls n/ckpt | wc -l"), 0);
    says("0");
    assert_int_equal(run("% train --data x.npy --poison 7 --nan skip"), 0);
    says("skipped 1");
}

static void sigterm_saves_and_leaves_in_peace(void **state)
{
    (void)state;
    assert_int_equal(run("% train --data x.npy --out s --steps 5000 "
                         "--slow 20 & p=$!; n=0; "
                         "until grep -qs '\"step\":2,' s/metrics.jsonl || "
                         "[ $n = 600 ]; do sleep 0.1; n=$((n + 1)); done; "
                         "kill -TERM $p; wait $p"), 0);
    says("saved in s/ckpt; go on with --resume auto");
    assert_int_equal(run("ls s/ckpt"), 0);
    says("step-0000");
}

static void a_hang_is_told_with_its_place(void **state)
{
    (void)state;
    assert_int_equal(run("% train --data x.npy --slow 30000 --timeout 1"), 5);
    says("nothing moved for 1 s");
    says("rank 0 (pid ");
    says("in op 'bad' (toy.lua:11)");
}

/* The one weight of a run's checkpoint at step 9: its file's last bytes. */
static float weight(const char *out)
{
    char path[256];
    float w = 0;
    snprintf(path, sizeof path, "%s/ckpt/step-00000009/model.safetensors",
             out);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, -4, SEEK_END);
    assert_int_equal(fread(&w, sizeof w, 1, f), 1);
    fclose(f);
    return w;
}

static void ranks_agree_with_one(void **state)
{
    (void)state;
    if (!has_mpirun())
        skip();
    assert_int_equal(run("% train --data x.npy --out r1 --steps 9 --quiet"),
                     0);
    assert_int_equal(run("TOY_RANKS=2 mpirun -n 2 % train --data x.npy "
                         "--out r2 --steps 9"), 0);
    says("2 ranks = 1 node x 2, ");
    assert_float_equal(weight("r1"), weight("r2"), 1e-6);
    assert_int_equal(run("TOY_RANKS=2 % train --data x.npy"), 1);
    says("the plan is for 2 (data=2) but 1 came; start it with mpirun -n 2");
    assert_int_equal(run("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=16 "
                         "% train"), 5);
    says("mpirun says task 0 of 16 but MPI says 0 of 1");
}

static void a_killed_rank_ends_all_and_is_named(void **state)
{
    (void)state;
    if (!has_mpirun())
        skip();
    assert_true(run("TOY_RANKS=2 mpirun -n 2 % train --data x.npy --out killed "
        "--steps 5000 --slow 20 --quiet & p=$!; n=0; "
        "until grep -qs '\"step\":2,' killed/metrics.jsonl || [ $n = 600 ]; "
        "do sleep 0.1; n=$((n + 1)); done; "
        "kill -9 $(pgrep -P $p | tail -n 1); wait $p") != 0);
    says("error: rank 1 (pid ");
    if (!strstr(text, "died after step")) { /* else: between two steps */
        says("died at step");
        says("of 'train' in op '");
    }
    says("start again with --resume auto");
}

int main(int argc, char **argv)
{
    const char *ranks = getenv("TOY_RANKS");
    if (getenv("TOY"))
        return dpc_main(argc, argv, toy_make(ranks ? atoi(ranks) : 1));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_option_is_told_its_neighbour),
        cmocka_unit_test(help_lists_the_scalars_of_the_model),
        cmocka_unit_test(training_learns_and_logs),
        cmocka_unit_test(a_resumed_run_equals_an_unbroken_one),
        cmocka_unit_test(weights_come_from_another_run),
        cmocka_unit_test(a_missing_input_names_what_there_is),
        cmocka_unit_test(captions_become_pictures),
        cmocka_unit_test(a_nan_ends_the_run_and_names_the_op),
        cmocka_unit_test(sigterm_saves_and_leaves_in_peace),
        cmocka_unit_test(a_hang_is_told_with_its_place),
        cmocka_unit_test(ranks_agree_with_one),
        cmocka_unit_test(a_killed_rank_ends_all_and_is_named),
    };
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    return n < 0 ? 1 : cmocka_run_group_tests(tests, start, end);
}
