// Everything here is newer than the floor in some way, or has state that must not be doubled.
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

static int failures;
static void failed(const char* what) { ++failures; std::cerr << what << std::endl; }
#define CHECK(condition) ((condition) ? (void)0 : failed(#condition))

struct Static { std::string name{"static"}; ~Static() { std::fputs("destroyed\n", stdout); } };
static Static with_destructor;
thread_local std::string per_thread = "a";
static std::once_flag once;
static int calls;

extern "C" __attribute__((visibility("default"))) int run() {
  using namespace std::chrono_literals;
  for (int i = 0; i < 2; ++i)
    std::call_once(once, [] { ++calls; std::atexit([] { std::fputs("at exit\n", stdout); }); });
  CHECK(calls == 1);
  std::cout << 1.5 << " " << std::hex << 255 << std::endl;
  std::smatch match; std::string text = "abc123";
  CHECK(std::regex_match(text, match, std::regex("([a-z]+)([0-9]+)")) && match[2] == "123");
  char buffer[64]; auto end = std::to_chars(buffer, buffer + 64, 3.25).ptr; double back = 0;
  CHECK(std::string(buffer, end) == "3.25" && (std::from_chars(buffer, end, back), back == 3.25));
  namespace fs = std::filesystem; std::error_code error;
  CHECK(fs::is_directory("/") && fs::directory_iterator("/") != fs::directory_iterator());
  (void)fs::file_size("/nonexistent", error); CHECK(error == std::errc::no_such_file_or_directory);
  try { (void)fs::file_size("/nonexistent"); CHECK(false); }
  catch (const fs::filesystem_error& e) { CHECK(e.path1() == "/nonexistent"); }
  bool other = false;
  std::thread([&] {
    per_thread += "b";
    try { throw std::runtime_error("x"); }
    catch (const std::exception& e) { other = per_thread == "ab" && !std::strcmp(e.what(), "x"); }
  }).join();
  CHECK(other && per_thread == "a");
  CHECK(std::async(std::launch::async, [] { return 7; }).get() == 7);
  auto failing = std::async(std::launch::async, []() -> int { throw std::out_of_range("y"); });
  try { failing.get(); CHECK(false); } catch (const std::out_of_range& e) { CHECK(!std::strcmp(e.what(), "y")); }
  volatile double two = 2; volatile float two_f = 2;
  CHECK(std::pow(two, 3.0) == 8 && std::abs(std::exp(std::log(two)) - 2) < 1e-12 && std::pow(two_f, 3.0f) == 8);
  struct stat status; CHECK(::stat("/", &status) == 0 && S_ISDIR(status.st_mode) && ::lstat("/", &status) == 0);
  CHECK(std::strtol("12", nullptr, 10) == 12 && std::stoi("13") == 13);
  std::vector<char> from(1000, 'x'), to(1000); std::memcpy(to.data(), from.data(), from.size()); CHECK(to == from);
  try { volatile size_t n = -1; delete[] new int[n]; CHECK(false); } catch (const std::bad_alloc&) {}
  try { throw std::system_error(2, std::generic_category()); }
  catch (const std::system_error& e) { CHECK(e.code() == std::errc::no_such_file_or_directory); }
  std::mutex mutex; std::condition_variable condition; std::unique_lock lock(mutex);
  auto start = std::chrono::steady_clock::now();
  CHECK(condition.wait_for(lock, 30ms) == std::cv_status::timeout && std::chrono::steady_clock::now() - start >= 30ms);
  std::timed_mutex timed; timed.lock(); std::thread([&] { CHECK(!timed.try_lock_for(10ms)); }).join();
  auto shared = std::make_shared<int>(3); CHECK(*std::atomic_load(&shared) == 3);
  std::ostringstream stream; stream << 1.25; CHECK(stream.str() == "1.25");
  CHECK(dlsym(RTLD_DEFAULT, "malloc") != nullptr && ::open("/nonexistent", O_RDONLY) == -1);
  return failures;
}

// Across the boundary: what one library throws another one catches, each with its own copy of what the floor lacks.

struct Own : std::exception {};

template <typename Exception>
static bool catches(void (*fail)(int), int kind) {
  try { fail(kind); }
  catch (const Exception&) { return true; }
  catch (...) { return false; }
  return false;
}

extern "C" __attribute__((visibility("default"))) void fail(int kind) {
  switch (kind) {
    case 0: throw std::runtime_error("0");
    case 1: (void)std::vector<int>().at(1); break;
    case 2: throw std::system_error(2, std::generic_category());
    case 3: (void)std::filesystem::file_size("/nonexistent"); break;
    case 4: (void)std::regex("("); break;
    case 5: { std::ifstream file; file.exceptions(std::ios::failbit); file.open("/nonexistent"); break; }
    case 6: throw std::bad_alloc();
    case 7: throw Own();
    case 8: std::async(std::launch::deferred, [] { throw std::invalid_argument("8"); }).get(); break;
    default: throw kind;
  }
}

extern "C" __attribute__((visibility("default"))) int survive(void (*fail)(int)) {
  const int before = failures;
  CHECK(catches<std::runtime_error>(fail, 0));
  CHECK(catches<std::out_of_range>(fail, 1));
  try { fail(2); CHECK(false); }
  catch (const std::system_error& e) { CHECK(e.code() == std::errc::no_such_file_or_directory); }
  try { fail(3); CHECK(false); }
  catch (const std::filesystem::filesystem_error& e) {
    CHECK(e.path1() == "/nonexistent" && e.code() == std::errc::no_such_file_or_directory);
  }
  try { fail(4); CHECK(false); }
  catch (const std::regex_error& e) { CHECK(e.code() == std::regex_constants::error_paren); }
  CHECK(catches<std::ios_base::failure>(fail, 5));
  CHECK(catches<std::bad_alloc>(fail, 6));
  CHECK(catches<Own>(fail, 7));
  CHECK(catches<std::exception>(fail, 7));
  CHECK(catches<std::invalid_argument>(fail, 8));
  CHECK(catches<int>(fail, 9));
  return failures - before;
}
