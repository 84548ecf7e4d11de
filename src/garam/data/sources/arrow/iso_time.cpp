#include "garam/data/sources/arrow/iso_time.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

namespace garam {
namespace {

constexpr std::int64_t kSecondsPerDay = 86400;

std::int64_t floor_divide(std::int64_t value, std::int64_t by) {
    return value / by - (value % by < 0 ? 1 : 0);
}

std::string padded(std::int64_t value, int digits) {
    std::string text(24, '\0');
    text.resize(static_cast<std::size_t>(
        std::snprintf(text.data(), text.size(), "%0*lld", digits, static_cast<long long>(value))));
    return text;
}

}  // namespace

std::string iso_date(std::int64_t days) {
    // Beyond the calendar's years the number of days is all that can be said.
    constexpr std::int64_t kMaxDays = 3'650'000;
    if (days < -719162 || days > kMaxDays) return std::to_string(days) + " days from 1970";
    const std::chrono::year_month_day date{
        std::chrono::sys_days{std::chrono::days{static_cast<int>(days)}}};
    return padded(static_cast<int>(date.year()), 4) + "-" +
           padded(static_cast<unsigned>(date.month()), 2) + "-" +
           padded(static_cast<unsigned>(date.day()), 2);
}

std::int64_t days_of(std::int64_t value, std::int64_t units_per_second) {
    return floor_divide(value, kSecondsPerDay * units_per_second);
}

std::string iso_time_of_day(std::int64_t value, std::int64_t units_per_second) {
    const std::int64_t seconds = floor_divide(value, units_per_second);
    const std::int64_t fraction = value - seconds * units_per_second;
    std::string text = padded(seconds / 3600, 2) + ":" + padded(seconds / 60 % 60, 2) + ":" +
                       padded(seconds % 60, 2);
    if (fraction == 0) return text;
    // Microseconds, or nanoseconds where those are not zero.
    if (units_per_second == 1'000'000'000 && fraction % 1000 != 0)
        return text + "." + padded(fraction, 9);
    return text + "." +
           padded(units_per_second <= 1'000'000 ? fraction * (1'000'000 / units_per_second)
                                                : fraction / 1000,
                  6);
}

std::string iso_timestamp(std::int64_t value, std::int64_t units_per_second) {
    const std::int64_t day = kSecondsPerDay * units_per_second;
    const std::int64_t days = floor_divide(value, day);
    // Not value - days * day, which may not fit.
    std::int64_t rest = value % day;
    if (rest < 0) rest += day;
    return iso_date(days) + "T" + iso_time_of_day(rest, units_per_second);
}

double half_as_double(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31)
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    return sign * std::ldexp(fraction + 1024, exponent - 25);
}

}  // namespace garam
