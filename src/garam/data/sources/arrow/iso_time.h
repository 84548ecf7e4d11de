// Dates and times of tables as text in the form of ISO 8601, as Python's isoformat() writes them; and half floats.
#pragma once

#include <cstdint>
#include <string>

namespace garam {

// Days from 1970-01-01: "2024-02-29".
std::string iso_date(std::int64_t days);
// The day that a time of so many units a second from 1970 lies in.
std::int64_t days_of(std::int64_t value, std::int64_t units_per_second);
// "13:05:00", "13:05:00.250000".
std::string iso_time_of_day(std::int64_t value, std::int64_t units_per_second);
// "2024-02-29T13:05:00".
std::string iso_timestamp(std::int64_t value, std::int64_t units_per_second);

double half_as_double(std::uint16_t bits);

}  // namespace garam
