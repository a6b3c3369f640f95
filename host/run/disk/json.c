#include "run/disk/json.h"
#include "base/plain.h"

/* The rule that was broken; NULL: jansson's own text says more. */
static const char *rule_of(enum json_error_code code) {
    switch (code) {
    case json_error_out_of_memory: return "out of memory";
    case json_error_stack_overflow: return "nested deeper than 2048";
    case json_error_invalid_utf8: return "not UTF-8";
    case json_error_premature_end_of_input: return "the text ends inside the value";
    case json_error_end_of_input_expected: return "text behind the value";
    case json_error_null_character:
    case json_error_null_byte_in_key: return "a NUL in a string";
    case json_error_duplicate_key: return "a duplicate key";
    case json_error_numeric_overflow: return "a number that is too large";
    default: return NULL;
    }
}

json_t *json_strict(const char *text, size_t n, size_t *end, char why[JSON_WHY]) {
    json_error_t error;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | (end ? JSON_DISABLE_EOF_CHECK : 0);
    locale_t before = plain_enter(); /* jansson reads numbers as the locale has them */
    json_t *value = json_loadb(text, n, flags, &error);
    plain_leave(before);
    if (value) {
        if (end) *end = (size_t)error.position;
        return value;
    }
    const char *rule = rule_of(json_error_code(&error));
    plain_format(why, JSON_WHY, "%s (line %d, column %d)", rule ? rule : error.text, error.line,
                 error.column);
    return NULL;
}
