/* test_json.c -- the printer of JSON, judged by a parser. */
#include "runtime/json.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void json_is_printed_and_escaped(void **state)
{
    char buf[200];
    DpcJsonText t = { buf, 0, sizeof buf };
    DpcJson j;
    (void)state;
    dpc_json_init(&j, dpc_json_text, &t, 0);
    dpc_json_open(&j, '{');
    dpc_json_key(&j, "a\"\n");
    dpc_json_open(&j, '[');
    dpc_json_num(&j, 0.1);
    dpc_json_num(&j, NAN);
    dpc_json_int(&j, INT64_MIN);
    dpc_json_bool(&j, true);
    dpc_json_str(&j, "\xc3\xa9\xff\x01");
    dpc_json_close(&j, ']');
    dpc_json_key(&j, "b");
    dpc_json_open(&j, '{');
    dpc_json_close(&j, '}');
    dpc_json_close(&j, '}');
    assert_int_equal(j.status, DPC_OK);
    assert_string_equal(buf, "{\"a\\\"\\n\":[0.1,null,-9223372036854775808,"
                        "true,\"\xc3\xa9\\ufffd\\u0001\"],\"b\":{}}");
}

static void doubles_read_back_equal(void **state)
{
    static const double v[] = { 0.1, 1e300, 5e-324, -1.0 / 3, 1e15, 123456789,
                                0x1.fffffffffffffp+1023, 2.5e-7 };
    char buf[400];
    DpcJsonText t = { buf, 0, sizeof buf };
    DpcJson j;
    (void)state;
    dpc_json_init(&j, dpc_json_text, &t, 3);
    dpc_json_open(&j, '[');
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        dpc_json_num(&j, v[i]);
    dpc_json_close(&j, ']');
    json_t *a = json_loads(buf, 0, NULL);
    assert_int_equal(json_array_size(a), sizeof v / sizeof *v);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        assert_true(json_number_value(json_array_get(a, i)) == v[i]);
    json_decref(a);
}

/* Every pair of bytes as a text: what comes out is always JSON. */
static void any_bytes_give_valid_json(void **state)
{
    (void)state;
    for (int i = 1; i < 256; i++)
        for (int k = 0; k < 256; k++) {
            char text[4] = { (char)i, (char)k, 'x' }, buf[64];
            DpcJsonText t = { buf, 0, sizeof buf };
            DpcJson j;
            dpc_json_init(&j, dpc_json_text, &t, 0);
            dpc_json_open(&j, '[');
            dpc_json_str(&j, text);
            dpc_json_close(&j, ']');
            assert_int_equal(j.status, DPC_OK);
            json_t *a = json_loads(buf, 0, NULL);
            assert_non_null(a);
            json_decref(a);
        }
}

static void a_full_sink_stops_the_printer(void **state)
{
    char buf[8];
    DpcJsonText t = { buf, 0, sizeof buf };
    DpcJson j;
    (void)state;
    dpc_json_init(&j, dpc_json_text, &t, 0);
    dpc_json_str(&j, "longer than eight");
    assert_int_equal(j.status, DPC_USER);
    assert_string_equal(dpc_last_error(), "json: error: text needs more than "
                        "the 8 bytes it may have");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_printed_and_escaped),
        cmocka_unit_test(doubles_read_back_equal),
        cmocka_unit_test(any_bytes_give_valid_json),
        cmocka_unit_test(a_full_sink_stops_the_printer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
